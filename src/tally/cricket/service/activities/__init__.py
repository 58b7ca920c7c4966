"""activities_tmp."""
