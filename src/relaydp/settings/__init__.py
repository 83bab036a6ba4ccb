"""What a run is made of, as a file or as flags say it; used by the command line and by studies."""
