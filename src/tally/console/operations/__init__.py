"""The pages for operating an instance: jobs, logs, backups, webhooks, alarms and operators."""
