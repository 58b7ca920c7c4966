"""sync_tmp."""
