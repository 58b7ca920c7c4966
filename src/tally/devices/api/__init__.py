"""The HTTP API of the devices backend: a data plane for boards, a control plane for operators."""
