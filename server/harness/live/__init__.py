"""A process that runs a reference's or a candidate's module: it is believed nothing."""
