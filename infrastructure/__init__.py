"""Disk, time, retries and foreign formats: the recorder, the codec, the engine, the projector, importers."""
