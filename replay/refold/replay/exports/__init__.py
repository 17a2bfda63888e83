"""Exports of logs in formats that other programs read. Each holds at most one turn of events in memory."""
