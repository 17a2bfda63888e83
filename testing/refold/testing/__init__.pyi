from .arguments import arguments as arguments
from .arguments import arguments_of as arguments_of
