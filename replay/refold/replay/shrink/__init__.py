"""`shrink`: find the smallest valid log that still shows a property."""
