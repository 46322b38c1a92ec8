package secret

import "testing"

func TestNamed(t *testing.T) {
	for name, want := range map[string]bool{
		"key": true, "api_key": true, "apiKey": true, "APIKey": true, "HF_TOKEN": true, "hf.token": true, "db-password": true,
		"clientSecret": true, "secretive": false, "keyboard": false, "max_tokens": false, "monkey": false, "lr": false, "": false,
		"tokenDim": true, "passwords": false, "KEY": true, "my_key_2": true,
	} {
		if Named(name) != want {
			t.Errorf("Named(%q) = %v", name, !want)
		}
	}
}
