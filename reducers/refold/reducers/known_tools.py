"""Names that well-known harnesses give their tools: those that write files, run code or drive a browser, and those that do not.

Globs, compared without case. What stands in neither list nobody here knows: a tool that begins another agent, a skill, what
fetches an address that the model wrote, everything that a person named. From the tools that each harness offers: Claude Code,
Codex, Copilot CLI, Cursor, Droid, Gemini CLI, Inspect, Kimi CLI, OpenCode, OpenHands, Pi, Qwen Code, SWE-agent, VS Code.
"""

_RUN_CODE = (
    *("bash*", "execute_bash", "execute_ipython_cell", "execute", "execute_command", "exec_command", "exec"),
    *("shell", "shell_command", "local_shell", "run_shell_command", "run_command", "run_terminal_cmd"),
    *("run_in_terminal", "send_to_terminal", "write_stdin", "write_bash", "write_powershell", "powershell"),
    *("terminal", "ipython", "python*", "code_interpreter", "code_execution", "unified_exec"),
    *("run_notebook_cell", "create_and_run_task", "run_vscode_command", "install_extension", "*__bash"),
)
_WRITE_FILES = (
    *("write", "write_file*", "writefile", "*__write_file", "write_to_file", "save_memory"),
    *("edit", "edit_file", "edit_notebook_file", "*__edit_file", "multiedit", "multi_edit", "notebookedit"),
    *("text_editor*", "str_replace_editor", "str_replace_based_edit_tool", "strreplacefile", "file_editor"),
    *(
        "replace",
        "replace_in_file",
        "replace_string_in_file",
        "multi_replace_string_in_file",
        "search_replace",
    ),
    *(
        "apply_patch",
        "applypatch",
        "apply_diff",
        "patch",
        "insert",
        "insert_content",
        "insert_edit_into_file",
    ),
    *("create", "create_file", "create_directory", "create_new_*", "delete_file", "undo_edit"),
    *(f"files:{command}" for command in ("write", "edit", "trash", "mkdir", "move")),
)
_DRIVE_A_BROWSER = (
    *("web_browser*", "browser", "browser_*", "*__browser_*", "computer", "computer_*", "open_browser_page"),
    *("navigate_page", "click_element", "drag_element", "hover_element", "type_in_page", "handle_dialog"),
    "run_playwright_code",
)

OF_ITS_LOOP = (
    *("=write_file*", "=text_editor*", "=bash*", "=python*", "=web_browser_*"),
    *(f"=files:{command}" for command in ("write", "edit", "trash", "mkdir", "move")),
)
"""What is sensitive to the loop from which `dev` and `prod` come, to the letter: of another harness it may know nothing."""

SENSITIVE = (*_RUN_CODE, *_WRITE_FILES, *_DRIVE_A_BROWSER)
"""What writes files, runs code or drives a browser; `tool:command` for one command of a tool."""

HARMLESS = (
    *("read", "read_file", "readfile", "read_many_files", "notebookread", "view", "view_file", "view_image"),
    *("open", "goto", "scroll_up", "scroll_down", "readmediafile", "read_notebook_cell_output"),
    *("ls", "list", "list_dir", "list_directory", "list_files", "glob", "find", "find_file", "find_files"),
    *(
        "grep",
        "grep_search",
        "grep_files",
        "search_dir",
        "search_file",
        "search_files",
        "search_file_content",
    ),
    *("file_search", "semantic_search", "codebase_search", "list_code_definition_names", "get_errors"),
    *("tool_search", "toolsearch", "web_search", "websearch", "google_web_search", "get_terminal_output"),
    *("terminal_last_command", "terminal_selection", "read_bash", "read_powershell", "taskoutput"),
    *("todowrite", "todo_write", "todoread", "todo_read", "write_todos", "settodolist", "manage_todo_list"),
    *("update_plan", "task_tracker", "think", "sequentialthinking", "report_intent", "question"),
    *("askuserquestion", "ask_user", "ask_followup_question", "vscode_askquestions", "request_user_input"),
    *("enterplanmode", "exitplanmode", "exit_plan_mode", "finish", "submit", "final_result"),
    *("attempt_completion", "task_complete"),
    *(f"files:{command}" for command in ("read", "ls", "list", "search", "find", "grep", "stat", "tree")),
)
"""What only reads, looks for something, asks the user, or notes what is to be done."""
