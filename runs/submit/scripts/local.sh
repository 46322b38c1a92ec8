#!/bin/sh
trap : HUP INT TERM
{{- range .Environ}}
export {{sh .}}
{{- end}}
{{template "keep" .}}
{{template "drun" .}}
over $code
