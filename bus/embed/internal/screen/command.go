package screen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrProtocol is what a client of the bus doesn't send.
var ErrProtocol = errors.New("this is not the protocol of the bus's clients")

// readCommand reads one line. The arguments are valid until the next read.
func readCommand(in *bufio.Reader) (verb string, args []byte, err error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) || len(line) > lineSize {
		return "", nil, fmt.Errorf("%w: a command is longer than %d bytes", ErrProtocol, lineSize)
	}
	if err != nil {
		return "", nil, err
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	for _, b := range line {
		if b < ' ' && b != '\t' || b == 0x7f {
			return "", nil, fmt.Errorf("%w: a command has the byte %#x", ErrProtocol, b)
		}
	}
	end := bytes.IndexAny(line, " \t")
	if end < 0 {
		end = len(line)
	}
	if end > len("CONNECT") {
		return "", nil, fmt.Errorf("%w: a command of %d letters", ErrProtocol, end)
	}
	return strings.ToUpper(string(line[:end])), line[end:], nil
}

func fields(args []byte) []string { return strings.Fields(string(args)) }

// message is one message that a client publishes.
type message struct {
	subject, reply string
	header         []byte
	headerSize     int
	size           int // of the payload, without the headers
}

// parsePublish reads the arguments of PUB (subject, reply or nothing, size) or HPUB (with the size of the headers
// before that of all).
func parsePublish(verb string, args []string, maxPayload int) (message, error) {
	sizes := 1
	if verb == "HPUB" {
		sizes = 2
	}
	if len(args) != 1+sizes && len(args) != 2+sizes {
		return message{}, fmt.Errorf("%w: %s has %d arguments", ErrProtocol, verb, len(args))
	}
	m := message{subject: args[0]}
	if len(args) == 2+sizes {
		m.reply = args[1]
	}
	size, err := parseSize(args[len(args)-1])
	if err != nil {
		return message{}, err
	}
	if verb == "HPUB" {
		if m.headerSize, err = parseSize(args[len(args)-2]); err != nil {
			return message{}, err
		}
	}
	if m.headerSize > size || m.headerSize > maxHeader || size > maxPayload || isRequest(m.subject) && size > maxRequest {
		return message{}, fmt.Errorf("%w: a message of %d bytes with %d of headers", ErrProtocol, size, m.headerSize)
	}
	m.size = size - m.headerSize
	return m, nil
}

// parseSize reads a decimal number without a sign.
func parseSize(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no size", ErrProtocol, text)
	}
	return int(n), nil
}

// isToken reports whether text has only letters, digits and dashes.
func isToken(text string) bool {
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return text != ""
}

// isLiteral reports whether the subject names one subject: no token is empty or a wildcard.
func isLiteral(subject string) bool {
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" {
			return false
		}
	}
	return true
}
