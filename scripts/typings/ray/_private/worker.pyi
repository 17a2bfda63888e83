_worker_logs_enabled: bool
