package belay

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
)

func read(s string) (any, error) { return newRespReader(strings.NewReader(s)).read() }

func TestReplies(t *testing.T) {
	for text, want := range map[string]any{
		"+OK\r\n":                 "OK",
		":-12\r\n":                int64(-12),
		",0.5\r\n":                0.5,
		"_\r\n":                   nil,
		"$-1\r\n":                 nil,
		"*-1\r\n":                 nil,
		"#t\r\n":                  true,
		"$3\r\na\r\n\r\n":         "a\r\n",
		"$0\r\n\r\n":              "",
		"=5\r\ntxt:a\r\n":         "a",
		"-STALE not held\r\n":     &ServerError{"STALE", "not held"},
		"*2\r\n:1\r\n*0\r\n":      []any{int64(1), []any(nil)},
		">2\r\n+event\r\n:7\r\n":  push{"event", int64(7)},
		"%1\r\n+a\r\n*1\r\n_\r\n": map[string]any{"a": []any{nil}},
	} {
		got, err := read(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, %v, want %#v", text, got, err, want)
		}
		for end := range text {
			if got, err := read(text[:end]); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%q: got %#v, %v, want the end", text[:end], got, err)
			}
		}
	}
}

func TestRepliesThatAreNone(t *testing.T) {
	for _, text := range []string{
		"\r\n", "OK\r\n", "+OK\n", ":\r\n", ":1.5\r\n", ":9223372036854775808\r\n", ",x\r\n", "$-2\r\n",
		"$x\r\n", "$1\r\nab\r\n", fmt.Sprintf("$%d\r\n", respBytesMax+1), "%-1\r\n", "%1\r\n:1\r\n:1\r\n",
		strings.Repeat("*1\r\n", respDepthMax+1) + ":1\r\n", "+" + strings.Repeat("x", respLineMax) + "\r\n",
	} {
		if got, err := read(text); !errors.Is(err, errProtocol) {
			t.Errorf("%.40q: got %#v, %v", text, got, err)
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add("*2\r\n$3\r\nabc\r\n%1\r\n+k\r\n,1e3\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		in := newRespReader(strings.NewReader(text))
		for {
			if _, err := in.read(); err != nil {
				return
			}
		}
	})
}

func TestCommand(t *testing.T) {
	got := string(appendCommand(nil, []string{"SHOW", "", "a\r\n"}))
	if want := "*3\r\n$4\r\nSHOW\r\n$0\r\n\r\n$3\r\na\r\n\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
