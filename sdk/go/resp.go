package belay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What a reply may have at most, as libbelay has it.
const (
	respDepthMax = 8
	respItemsMax = 1 << 20
	respBytesMax = 64 << 20
	respLineMax  = 64 << 10
)

// A push is a message of the server that answers no request.
type push []any

var errProtocol = errors.New("the answer is not one of a Belay server")

// appendCommand appends a command in the form of the wire: an array of strings.
func appendCommand(b []byte, words []string) []byte {
	size := 16
	for _, w := range words {
		size += len(w) + 16
	}
	b = slices.Grow(b, size)
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(words)), 10)
	b = append(b, "\r\n"...)
	for _, w := range words {
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(w)), 10)
		b = append(b, "\r\n"...)
		b = append(b, w...)
		b = append(b, "\r\n"...)
	}
	return b
}

// A respReader reads replies: nil, bool, int64, float64, string, []any, map[string]any, push, or
// *Error.
type respReader struct {
	in    *bufio.Reader
	items int // of this reply
}

func newRespReader(r io.Reader) *respReader {
	return &respReader{in: bufio.NewReaderSize(r, 16<<10)}
}

func (r *respReader) read() (any, error) {
	r.items = 0
	return r.value(0)
}

func (r *respReader) line() (string, error) {
	var long []byte
	for {
		part, err := r.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
		if len(long)+len(part) > respLineMax {
			return "", fmt.Errorf("%w: a line without end", errProtocol)
		}
		if err == nil && long == nil {
			return checkLine(part)
		}
		long = append(long, part...)
		if err == nil {
			return checkLine(long)
		}
	}
}

func checkLine(b []byte) (string, error) {
	if !bytes.HasSuffix(b, []byte("\r\n")) {
		return "", fmt.Errorf("%w: LF without CR", errProtocol)
	}
	return string(b[:len(b)-2]), nil
}

func (r *respReader) value(depth int) (any, error) {
	r.items++
	if depth > respDepthMax || r.items > respItemsMax {
		return nil, fmt.Errorf("%w: too many values", errProtocol)
	}
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	if line == "" {
		return nil, fmt.Errorf("%w: an empty line", errProtocol)
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return serverError(rest), nil
	case ':':
		return whole(rest, math.MinInt64)
	case ',':
		return float(rest)
	case '_':
		return nil, nil
	case '#':
		return rest == "t", nil
	case '$', '=':
		return r.text(kind, rest)
	case '*', '~', '>':
		return r.list(kind, rest, depth)
	case '%':
		return r.pairs(rest, depth)
	}
	return nil, fmt.Errorf("%w: a value of type %q", errProtocol, kind)
}

func whole(s string, least int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least {
		return 0, fmt.Errorf("%w: %q is not such a number", errProtocol, s)
	}
	return n, nil
}

func float(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is not a number", errProtocol, s)
	}
	return f, nil
}

// A length that is declared allocates nothing: memory grows with the bytes that come.
func (r *respReader) text(kind byte, length string) (any, error) {
	n, err := whole(length, -1)
	if err != nil || n == -1 {
		return nil, err
	}
	if n > respBytesMax {
		return nil, fmt.Errorf("%w: %d bytes of text", errProtocol, n)
	}
	var b strings.Builder
	b.Grow(int(min(n, respLineMax)))
	if _, err := io.CopyN(&b, r.in, n); err != nil {
		return nil, err
	}
	if end, err := r.line(); err != nil || end != "" {
		return nil, errors.Join(err, errProtocol)
	}
	if kind == '=' && n >= 4 {
		return b.String()[4:], nil // "txt:" and the text
	}
	return b.String(), nil
}

func (r *respReader) list(kind byte, length string, depth int) (any, error) {
	n, err := whole(length, -1)
	if err != nil || n == -1 {
		return nil, err
	}
	var items []any
	for ; n > 0; n-- {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	if kind == '>' {
		return push(items), nil
	}
	return items, nil
}

func (r *respReader) pairs(length string, depth int) (any, error) {
	n, err := whole(length, 0)
	if err != nil {
		return nil, err
	}
	m := map[string]any{}
	for ; n > 0; n-- {
		key, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("%w: a map's key is not text", errProtocol)
		}
		if m[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return m, nil
}
