// Package secret recognises parameters whose values must not be stored or shown.
package secret

import (
	"slices"
	"strings"
	"unicode"
)

// Redacted is shown in place of a value.
const Redacted = "[redacted]"

// Withheld is the type of a parameter whose value was not kept.
const Withheld = "secret"

// Named reports whether a parameter's name says that its value is a secret: one
// of its words is key, token, password or secret. Words are separated by _ . -
// and by case: api_key, apiKey and hf.token are secrets, keyboard and max_tokens are not.
func Named(name string) bool {
	var word []rune
	isSecret := func() bool {
		w := strings.ToLower(string(word))
		word = word[:0]
		return w == "key" || w == "token" || w == "password" || w == "secret"
	}
	runes := []rune(name)
	for i, r := range runes {
		border := unicode.IsUpper(r) && i > 0 && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if r == '_' || r == '.' || r == '-' || border {
			if isSecret() {
				return true
			}
		}
		if r != '_' && r != '.' && r != '-' {
			word = append(word, r)
		}
	}
	return isSecret()
}

// Text returns the value of a parameter with that name in the form in which it may be shown.
func Text(name, value string) string {
	if Named(name) {
		return Redacted
	}
	return value
}

// Arguments returns the arguments of a command without the values of such parameters.
func Arguments(args []string) []string {
	shown := slices.Clone(args)
	for i, arg := range shown {
		if name, _, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "--param="), "-p"), "="); given && Named(name) {
			shown[i] = arg[:strings.Index(arg, "=")+1] + Redacted
		}
	}
	return shown
}
