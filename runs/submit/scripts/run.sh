{{- /* How a script runs drun: beneath a launcher, for a run or a cell of a sweep. drun's exit code is kept once it is final. */ -}}
{{define "keep" -}}
over() { cd {{sh .Folder}} && echo "$@" >{{.Keep}}.part && mv {{.Keep}}.part {{.Keep}}; exit $1; }
cd {{sh .Dir}} || over 2 {{sh (print .Dir " is not there: the nodes must share it")}}
export DRUN_HOME={{sh .RunHome}} DRUN_JOB={{sh (print .Folder "/job.json")}}
{{- if .Cells}}
export DRUN_JOB_CELL=${{.CellVariable}}
. {{sh (print .Folder "/cells")}}
{{- end}}
{{- end}}
{{define "drun" -}}
{{sh .Program}} {{sh .Arguments}}{{if .Cells}} "$@"{{end}}
code=$?
{{- end}}
