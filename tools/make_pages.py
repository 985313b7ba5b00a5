#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes manual pages and shell completion from what a built program prints of its tables.

    tools/make_pages.py ECHELON FOLDER

FOLDER gets man/man1/echelon.1 and one page a command, man/man5/echelon-run.5 with all keys of run
files, bash-completion/completions/echelon and zsh/site-functions/_echelon. The build makes them
(cmake/pages.cmake), and `cmake --install` installs them below share/.
"""
import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"^ {2,6}(?:-(\S), |    )--([a-z-]+)(?:=(\S+))?(?: +(.*))?$")
COMMAND = re.compile(r"^  ([a-z]+) .*?  *(\S.*)$")
KEY = re.compile(r"^  ([a-z]+\.[a-z0-9_]+)$")
CHOICE = re.compile(r"^  ([a-z]+\.[a-z0-9_]+) = (\S+)$")


class Option:
    def __init__(self, letter, name, value, text):
        self.letter, self.name, self.value, self.text = letter, name, value, text


class Key:
    def __init__(self, name):
        self.name, self.lines, self.choices = name, [], []

    def about(self):
        return " ".join(self.lines)


class Program:
    """What the program says of itself."""

    def __init__(self, path):
        self.path = path
        self.version = self.ask("--version").split()[1]
        self.tour = self.ask("help")
        usage = self.tour[self.tour.index("Usage:"):].split("\n\n")
        self.commands = {}
        for line in usage[1].splitlines():
            found = re.match(r"  ([a-z]+)\s", line)
            if not found:
                sys.exit(f"make_pages: the list of commands has the line {line!r}")
            self.commands[found[1]] = line
        self.help = {name: self.ask(name, "--help") for name in self.commands}
        self.keys = read_keys(self.ask("help", "keys"))

    def ask(self, *words):
        done = subprocess.run([self.path, *words], stdout=subprocess.PIPE, text=True, check=True,
                              stdin=subprocess.DEVNULL)
        return done.stdout


def read_options(text):
    """The options of a command's help, and its other paragraphs."""
    options, rest, last = [], [], None
    for line in text.splitlines():
        found = OPTION.match(line)
        if found:
            last = Option(found[1], found[2], found[3], found[4] or "")
            options.append(last)
        elif last and line.startswith(" " * 20):
            last.text = (last.text + " " + line.strip()).strip()
        else:
            last = None
            if not line.startswith(" ") or line.startswith("  ech"):
                rest.append(line)
    return options, "\n".join(rest)


def read_keys(text):
    keys, key = {}, None
    for line in text.splitlines():
        found, choice = KEY.match(line), CHOICE.match(line)
        if found:
            key = keys.setdefault(found[1], Key(found[1]))
        elif choice:
            key = None
            if choice[1] in keys and choice[2] not in keys[choice[1]].choices:
                keys[choice[1]].choices.append(choice[2])
        elif key and line.startswith("      "):
            key.lines.append(line.strip())
        else:
            key = None
    for key in keys.values():
        listed = re.search(r"(?:one of|, or): ([^;]*)", key.about())
        for word in listed[1].split() if listed else []:
            if word not in key.choices:
                key.choices.append(word)
        if re.search(r"\btrue or false\b", key.about()):
            key.choices += ["true", "false"]
    return keys


# ---- manual pages ----

def roff(text):
    out = []
    for line in text.replace("\\", "\\e").replace("-", "\\-").splitlines():
        out.append("\\&" + line if line[:1] in (".", "'") else line)
    return "\n".join(out)


def heading(name, section, version, about):
    return (f'.TH {name.upper()} {section} "" "echelon {version}"\n.SH NAME\n'
            f"{roff(name)} \\- {roff(about)}\n")


def paragraphs(text):
    return "".join((".PP\n.nf\n" + roff(part) + "\n.fi\n" if part.startswith("  ") else
                    ".PP\n" + roff(part) + "\n")
                   for part in re.split(r"\n\s*\n", text.strip("\n")) if part.strip())


def command_page(program, name):
    options, rest = read_options(program.help[name])
    usage, _, rest = rest.partition("\n")
    while rest.startswith("  or:"):
        usage, rest = usage + "\n" + rest.partition("\n")[0], rest.partition("\n")[2]
    about = re.split(r"  +|\]", program.commands[name].strip())[-1]
    page = heading(f"echelon-{name}", 1, program.version, about)
    page += ".SH SYNOPSIS\n" + "".join(
        "\\fB" + roff(re.sub(r"^\s*(Usage|or):\s*", "", line)) + "\\fR\n.br\n"
        for line in usage.splitlines())
    page += ".SH DESCRIPTION\n" + paragraphs(rest) + ".SH OPTIONS\n"
    for option in options:
        flags = f"\\-{option.letter}, " if option.letter else ""
        value = f"=\\fI{roff(option.value)}\\fR" if option.value else ""
        page += f".TP\n\\fB{flags}\\-\\-{roff(option.name)}\\fR{value}\n{roff(option.text)}\n"
    return page + ".SH SEE ALSO\n.BR echelon (1),\n.BR echelon-run (5)\n"


def tour_page(program):
    page = heading("echelon", 1, program.version, "trains large neural networks on many devices")
    page += ".SH DESCRIPTION\n" + paragraphs(program.tour.replace("Usage:", "  Usage:"))
    return page + ".SH SEE ALSO\n" + ",\n".join(
        f".BR echelon-{name} (1)" for name in program.commands) + ",\n.BR echelon-run (5)\n"


def keys_page(program):
    page = heading("echelon-run", 5, program.version, "keys of echelon's run files")
    page += (".SH DESCRIPTION\nA run file is YAML: sections, and in each section keys. Words such "
             "as training.steps=100 on the command line set keys in its place.\n")
    section = None
    for key in program.keys.values():
        if key.name.partition(".")[0] != section:
            section = key.name.partition(".")[0]
            page += f".SH {section.upper()}\n"
        page += f".TP\n\\fB{roff(key.name)}\\fR\n" + "\n.br\n".join(map(roff, key.lines)) + "\n"
    return page + ".SH SEE ALSO\n.BR echelon (1)\n"


# ---- completion ----

BASH = r"""# bash completion of echelon; written by tools/make_pages.py
_echelon() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD-1]}
    local list key
    if [ "$word" = "=" ]; then word="" key=$before
    elif [ "$before" = "=" ]; then key=${COMP_WORDS[COMP_CWORD-2]}
    fi
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@ help --version --help" -- "$word"))
        return
    fi
    if [ -n "$key" ]; then
        case $key in
@VALUES@
        esac
        COMPREPLY=($(compgen -W "$list" -- "$word"))
        [ -n "$list" ] || COMPREPLY=($(compgen -f -- "$word"))
        return
    fi
    case $command in
        help) list="keys key together techniques @COMMANDS@"
            [ "$before" != key ] || list="@KEYS@" ;;
@OPTIONS@
    esac
    case $word in
        -*) COMPREPLY=($(compgen -W "$list" -- "$word")) ;;
        *)  [ "$command" = help ] || list=""
            [[ ! $command =~ ^(@RUNS@)$ ]] || list="@ASSIGNED@"
            COMPREPLY=($(compgen -W "$list" -- "$word"))
            [ "$command" = help ] || COMPREPLY+=($(compgen -f -- "$word")) ;;
    esac
    [[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace
}
complete -o filenames -F _echelon echelon
"""

ZSH = r"""#compdef echelon
# zsh completion of echelon; written by tools/make_pages.py
_echelon() {
    local -a commands
    commands=(
@COMMANDS@
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    (( CURRENT-- ))
    shift words
    case $command in
@OPTIONS@
        *) _files ;;
    esac
}
_echelon_keys() {
    local -a keys
    if compset -P 1 '*='; then
        case $IPREFIX in
@VALUES@
            *) _files ;;
        esac
        return
    fi
    keys=(@KEYS@)
    compadd -S = -a keys
    _files
}
_echelon "$@"
"""


def takes_keys(program, name):
    return "section.key=value" in program.help[name]


def fill(template, **values):
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template


def bash_completion(program):
    options = "".join(
        f'        {name}) list="' + " ".join(
            f"--{o.name}" + ("=" if o.value else "") for o in read_options(text)[0]) + '" ;;\n'
        for name, text in program.help.items()).rstrip("\n")
    values = "".join(f'            {key.name}) list="{" ".join(key.choices)}" ;;\n'
                     for key in program.keys.values() if key.choices).rstrip("\n")
    return fill(BASH, COMMANDS=" ".join(program.commands), OPTIONS=options, VALUES=values,
                RUNS="|".join(name for name in program.commands if takes_keys(program, name)),
                ASSIGNED=" ".join(key + "=" for key in program.keys),
                KEYS=" ".join(program.keys))


def zsh_word(text):
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", "\\:")


def zsh_completion(program):
    commands = "\n".join(
        f"        '{name}:{zsh_word(re.split(r'  +', line.strip())[-1])}'"
        for name, line in program.commands.items())
    options = ""
    for name, text in program.help.items():
        words = [f"'--{o.name}{'=' if o.value else ''}[{zsh_word(o.text)}]"
                 f"{':' + zsh_word(o.value) + ':_files' if o.value else ''}'"
                 for o in read_options(text)[0]]
        action = "_echelon_keys" if takes_keys(program, name) else "_files"
        words.append(f"'*:word:{action}'")
        options += f"        {name}) _arguments \\\n            " + \
            " \\\n            ".join(words) + " ;;\n"
    values = "".join(f"            {key.name}=) compadd {' '.join(key.choices)} ;;\n"
                     for key in program.keys.values() if key.choices).rstrip("\n")
    return fill(ZSH, COMMANDS=commands, OPTIONS=options.rstrip("\n"), VALUES=values,
                KEYS=" ".join(program.keys))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, folder = Program(sys.argv[1]), pathlib.Path(sys.argv[2])
    pages = {"man/man1/echelon.1": tour_page(program),
             "man/man5/echelon-run.5": keys_page(program),
             "bash-completion/completions/echelon": bash_completion(program),
             "zsh/site-functions/_echelon": zsh_completion(program)}
    for name in program.commands:
        pages[f"man/man1/echelon-{name}.1"] = command_page(program, name)
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
