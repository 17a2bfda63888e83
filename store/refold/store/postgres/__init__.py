"""Logs in PostgreSQL. Needs psycopg: `pip install 'refold[postgres]'`."""
