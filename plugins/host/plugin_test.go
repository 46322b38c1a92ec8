package host

// act makes this program a plugin that behaves as its name says.
func act(string) {}
