from .models import ToolCallingModel as ToolCallingModel
from .strategies.events import events as events
from .strategies.logs import logs as logs
from .strategies.policies import policies as policies
from .strategies.scripts import scripts as scripts
from .tool_arguments import arguments as arguments
from .tool_arguments import arguments_of as arguments_of
