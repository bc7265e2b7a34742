"""The bundle: a memory as a folder of files."""
