"""Live Activities: follows, devices, starts, ends, notifications and the orchestrator."""
