{{- /* Prints for each job what squeue says, or else scontrol, which knows jobs for some minutes after their end, or accounting, where there is any; and what the job's script has left. */ -}}
q=$(squeue -h -r -t all -u "$(id -un)" -o '%i|%T|%r|%N') || exit
printf '%s\n' "$q" | sed 's/^/state /'
q="
$q"
ask() { # HANDLE EXIT
    [ ! -e "$2" ] || echo "exit $1 $(cat "$2")"
    case $q in *"
$1|"*) return ;; esac
    [ ! -e "$2" ] || return
    k=$(scontrol -o show job "$1" 2>/dev/null | sed -n "s/.* JobState=\([^ ]*\) Reason=\([^ ]*\) .* NodeList=\([^ ]*\) .*/state $1|\1|\2|\3/p")
    if [ -n "$k" ]; then echo "$k"; else sacct -P -n -X -o JobID,State,NodeList -j "$1" 2>/dev/null | sed 's/^\([^|]*|[^|]*\)/state \1|/'; fi
}
{{- range .}}
ask {{sh .Handle (exit .)}}
{{- end}}
:
