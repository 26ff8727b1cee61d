package belay

import "testing"

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"a.example":              "a.example:7117",
		"127.0.0.1:1":            "127.0.0.1:1",
		"[::1]":                  "[::1]:7117",
		"[::1]:65535":            "[::1]:65535",
		"tls://a.example":        "tls://a.example:7117",
		"tls://[::1]:7":          "tls://[::1]:7",
		"unix:///run/belay.sock": "unix:///run/belay.sock",
	} {
		list, err := parseAddresses([]string{text + "," + text, text})
		if err != nil || len(list) != 3 || list[1].text != want {
			t.Errorf("%q: got %v, %v, want %q", text, list, err, want)
		}
	}
	for _, text := range []string{
		"", ":1", "a:", "a:0", "a:65536", "a:x", "::1", "[::1", "[::1]x", "[]", "a b", "http://a", "unix://", "unix://a", "a:1,", "tls://",
	} {
		if list, err := parseAddresses([]string{text}); err == nil {
			t.Errorf("%q: got %v", text, list)
		}
	}
}
