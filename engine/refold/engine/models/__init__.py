"""The model interface and the models that come with refold. Each is imported where it is used."""
