# shellcheck shell=bash
# Completion of hak for bash. Verbs and options are those that `hak help` tells.
_hak() {
  local hak=${COMP_WORDS[0]} verb=${COMP_WORDS[1]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} i help
  COMPREPLY=()
  if ((COMP_CWORD == 1)) || [[ $verb == help ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$("$hak" help 2>/dev/null | grep -o '\(^ \|;\) hak [a-z]*' | sed 's/.* //' | sort -u)" -- "$word")
    return
  fi
  # What follows -- is a command of its own.
  for ((i = 2; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -- ]] || continue
    if declare -F _command_offset >/dev/null; then
      _command_offset $((i + 1))
    elif ((COMP_CWORD == i + 1)); then
      mapfile -t COMPREPLY < <(compgen -c -- "$word")
    else
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
    return
  done
  help=$("$hak" help "$verb" 2>/dev/null) || return
  case $before in
    # An option whose text lists its values: "--profile P  speed, balanced, lean or secure".
    --profile) mapfile -t COMPREPLY < <(compgen -W "$(sed -n 's/ (.*//; s/, / /g; s/ or / /; s/^  --profile [A-Z]*  *//p' <<<"$help")" -- "$word") ;;
    --out | --root) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    *)
      if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(grep -o -- '--[a-z][a-z-]*' <<<"$help" | sort -u)" -- "$word")
      elif [[ $verb == enable || $verb == disable ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(systemctl list-unit-files --type=service --no-legend --plain 2>/dev/null | sed 's/ .*//')" -- "$word")
      elif [[ $help == *"$verb "*PID* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(cd /proc && echo [0-9]*)" -- "$word")
      else
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
      fi
      ;;
  esac
}
complete -o filenames -F _hak hak
