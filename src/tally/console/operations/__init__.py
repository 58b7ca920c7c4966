"""The pages for operating an instance: jobs, logs, back-ups, webhooks, alarms and operators."""
