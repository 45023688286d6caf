#compdef hak
# Completion of hak for zsh. Verbs and options are those that `hak help` tells.
local hak=${words[1]} verb=${words[2]} help i
local -a verbs options values
if ((CURRENT == 2)) || [[ $verb == help ]]; then
  # "  hak VERB ARGUMENTS   text"; in the text of some, "; hak VERB ARGUMENT text".
  help=$($hak help 2>/dev/null)
  verbs=(${(f)"$({
    print -r -- $help | sed -n 's/^  hak \([a-z]*\).*   *\(.*\)/\1:\2/p'
    print -r -- $help | sed -n 's/.*; hak \([a-z]*\)[A-Z: ]*\(.*\)/\1:\2/p'
  } | awk -F : '!seen[$1]++')"})
  _describe -t verbs 'verb of hak' verbs
  return
fi
# What follows -- is a command of its own.
i=${words[(i)--]}
if ((i < CURRENT)); then
  shift $i words
  ((CURRENT -= i))
  _normal
  return
fi
help="$($hak help $verb 2>/dev/null)"
case ${words[CURRENT - 1]} in
  # An option whose text lists its values: "--profile P  speed, balanced, lean or secure".
  --profile)
    values=(${=$(print -r -- $help | sed -n 's/ (.*//; s/, / /g; s/ or / /; s/^  --profile [A-Z]*  *//p')})
    _describe -t values 'preset' values
    ;;
  *)
    if [[ ${words[CURRENT]} == -* ]]; then
      options=(${(fu)"$(print -r -- $help | grep -o -- '--[a-z][a-z-]*')"})
      _describe -t options 'option' options
    elif [[ $verb == (enable|disable) ]]; then
      values=(${(f)"$(systemctl list-unit-files --type=service --no-legend --plain 2>/dev/null | sed 's/ .*//')"})
      _describe -t units 'service' values
    elif [[ $help == *"$verb "*PID* ]]; then
      _pids
    else
      _files
    fi
    ;;
esac
