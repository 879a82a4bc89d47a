"""`penstock completion`: scripts for bash, zsh and fish, written from the tree of commands.

A script finds the command from the words typed so far, then offers its subcommands, flags or values. No script runs
penstock, so a completion takes as long as the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

from gateway.cli.parsing.command_tree import CompletedCommand, CompletedFlag

Shell = Literal["bash", "zsh", "fish"]
PROGRAM: Final = "penstock"

_BASH: Final = """\
# Completion of penstock for bash: source <(penstock completion bash)
_penstock() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local chosen= commands= flags= values= kind= word
  if [[ $current == = ]]; then current=
  elif [[ $previous == = ]]; then previous=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$chosen $word" in
      @PATHS@) chosen="$chosen $word" ;;
    esac
  done
  case "$chosen" in
@CASES@
  esac
  COMPREPLY=()
  case "$kind" in
    text) ;;
    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    *)
      if [[ -z $values && $current == -* ]]; then values=$flags; fi
      if [[ -n ${values:-$commands} ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${values:-$commands}" -- "$current")
      fi ;;
  esac
}
complete -F _penstock penstock
"""

_ZSH: Final = """\
#compdef penstock
# Completion of penstock for zsh: source <(penstock completion zsh)
_penstock() {
  local previous=$words[CURRENT-1] chosen= kind= word
  local -a commands flags values
  if [[ $PREFIX == --*=* ]]; then previous=${PREFIX%%=*}; compset -P '*='; fi
  for word in ${words[2,CURRENT-1]}; do
    case "$chosen $word" in
      (@PATHS@) chosen="$chosen $word" ;;
    esac
  done
  case "$chosen" in
@CASES@
  esac
  if [[ $kind == text ]]; then _message value
  elif [[ $kind == file ]]; then _files
  elif [[ $kind == folder ]]; then _files -/
  elif (( $#values )); then compadd -- $values
  elif [[ $PREFIX == -* ]]; then _describe -o option flags
  elif (( $#commands )); then _describe command commands
  fi
}
if [[ $funcstack[1] == _penstock ]]; then
  _penstock "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _penstock penstock
fi
"""

_FISH: Final = """\
# Completion of penstock for fish: penstock completion fish | source
function __penstock_at
    set -l chosen ''
    for word in (commandline -opc)[2..-1]
        switch "$chosen $word"
            case @PATHS@
                set chosen "$chosen $word"
        end
    end
    test "$chosen" = "$argv[1]"
end
complete -c penstock -f
@CASES@
"""


def completion_script(tree: CompletedCommand, shell: Shell) -> str:
    """Return the script of a shell for a tree of commands."""
    return _WRITERS[shell](tree)


def _bash(tree: CompletedCommand) -> str:
    return _filled(_BASH, "|".join(_paths(tree)), tree, _bash_case)


def _bash_case(command: CompletedCommand) -> Iterator[str]:
    yield f"    {_quoted(_path(command))})"
    yield f"      flags={_quoted(' '.join(name for flag in command.flags for name in flag.names))}"
    if command.commands:
        yield f"      commands={_quoted(' '.join(child.words[-1] for child in command.commands))}"
    if command.choices:
        yield f"      commands={_quoted(' '.join(command.choices))}"
    yield from _values(command, "{})", lambda choices: f"values={_quoted(' '.join(choices))}", "$current")
    yield "      ;;"


def _zsh(tree: CompletedCommand) -> str:
    return _filled(_ZSH, "|".join(_paths(tree)), tree, _zsh_case)


def _zsh_case(command: CompletedCommand) -> Iterator[str]:
    flags = " ".join(_quoted(f"{name}:{flag.text}") for flag in command.flags for name in flag.names)
    yield f"    ({_quoted(_path(command))})"
    yield f"      flags=({flags})"
    children = [f"{child.words[-1]}:{child.text}" for child in command.commands] or list(command.choices)
    if children:
        yield f"      commands=({' '.join(map(_quoted, children))})"
    yield from _values(command, "({})", lambda choices: f"values=({' '.join(map(_quoted, choices))})", "$PREFIX")
    yield "      ;;"


def _values(
    command: CompletedCommand, pattern: str, with_choices: Callable[[Sequence[str]], str], typed: str
) -> Iterator[str]:
    """Write the values after each flag that takes one, in the syntax of bash or zsh.

    Args:
        command: The command with its flags.
        pattern: A pattern of `case`, around `{}`.
        with_choices: Returns the assignment of a list of values.
        typed: The variable with the word under the cursor.
    """
    cases = [(flag.names, with_choices(flag.choices)) for flag in command.flags if flag.choices]
    for kind in ("text", "file", "folder"):
        names = [name for flag in command.flags if flag.kind == kind and not flag.choices for name in flag.names]
        cases += [(tuple(names), f"kind={kind}")] if names else []
    if command.takes_files:
        cases.append((("*",), f"[[ {typed} == -* ]] || kind=file"))
    if not cases:
        return
    yield '      case "$previous" in'
    for spellings, effect in cases:
        yield f"        {pattern.format('|'.join(spellings))} {effect} ;;"
    yield "      esac"


def _fish(tree: CompletedCommand) -> str:
    return _filled(_FISH, " ".join(_paths(tree)), tree, _fish_lines)


def _fish_lines(command: CompletedCommand) -> Iterator[str]:
    start = f"complete -c {PROGRAM} -n {_fish_quoted(f'__penstock_at {_quoted(_path(command))}')}"
    for child in command.commands:
        yield f"{start} -a {child.words[-1]} -d {_fish_quoted(child.text)}"
    if command.choices:
        yield f"{start} -a {_fish_quoted(' '.join(command.choices))}"
    if command.takes_files:
        yield f"{start} -F"
    for flag in command.flags:
        yield f"{start} {_fish_flag(flag)} -d {_fish_quoted(flag.text)}"


def _fish_flag(flag: CompletedFlag) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
    if flag.choices:
        return f"{names} -x -a {_fish_quoted(' '.join(flag.choices))}"
    values = {"none": "", "text": " -x", "file": " -r -F", "folder": " -x -a '(__fish_complete_directories)'"}
    return f"{names}{values[flag.kind]}"


def _paths(tree: CompletedCommand) -> list[str]:
    return [_quoted(_path(command)) for command in tree.walk() if command.words]


def _path(command: CompletedCommand) -> str:
    """Return the words in the form that scripts build them up: each after a space."""
    return "".join(f" {word}" for word in command.words)


def _filled(script: str, paths: str, tree: CompletedCommand, write: Callable[[CompletedCommand], Iterator[str]]) -> str:
    lines = [line for command in tree.walk() for line in write(command)]
    return script.replace("@PATHS@", paths).replace("@CASES@", "\n".join(lines))


def _quoted(text: str) -> str:
    """Quote a text for bash and zsh, also where nothing in it needs that."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_WRITERS: Final[Mapping[Shell, Callable[[CompletedCommand], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
