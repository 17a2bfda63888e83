"""Files that the demo copies into its folder, for the user to read, change and run again.

`claude-code-session.jsonl.gz` is a session of Claude Code as it was recorded, byte for byte but packed, from
entireio/cli, commit 394f81fab87f71aa8938d91ff7a067c524ff344b. `LICENCE-session` is its licence.
"""
