package screen

import (
	"bytes"
	"strings"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
)

// The parts of the server's API that readers need.
const (
	api          = "$JS.API."
	streamInfo   = api + "STREAM.INFO."
	directGet    = api + "DIRECT.GET."
	createReader = api + "CONSUMER.CREATE."
	flowControl  = "$JS.FC."
)

// isRequest reports whether the subject is one of the server's API.
func isRequest(subject string) bool { return strings.HasPrefix(subject, api) }

// rules are those for one member of the crew. The subjects on which it may publish are the server's to check; a member
// without a name, whose key the server doesn't know, may send nothing at all.
type rules struct{ member string }

// message says why the message is refused as far as that can be said without its payload, or "".
func (r rules) message(m message) string {
	switch {
	case r.member == "":
		return "the bus doesn't know this client"
	case !r.mayReplyTo(m):
		return "the reply would go to " + m.reply
	case isRequest(m.subject):
		if m.headerSize > 0 {
			return "a request to the bus itself has headers"
		}
		return ""
	case strings.HasPrefix(m.subject, flowControl):
		return r.flowControl(m)
	case strings.HasPrefix(m.subject, "$"):
		return "the subject is the server's own"
	case !isLiteral(m.subject):
		return "the subject is a pattern"
	}
	return r.header(m.header)
}

// mayReplyTo reports whether the reply subject is the member's own: an inbox, or the one for the reply to this call.
func (r rules) mayReplyTo(m message) bool {
	if m.reply == "" {
		return true
	}
	token, ok := strings.CutPrefix(m.reply, "_REPLY."+r.member+"."+m.subject+".")
	if ok && isToken(token) {
		return true
	}
	return strings.HasPrefix(m.reply, r.inbox()) && isLiteral(m.reply)
}

// inbox begins the subjects of the member's own inboxes.
func (r rules) inbox() string { return "_INBOX." + r.member + "." }

// readers begins the names of the member's own readers on the bus.
func (r rules) readers() string { return layout.ReaderPrefix + r.member + "-" }

// flowControl says why the answer to a request of flow control is refused: it must be about the member's own reader.
func (r rules) flowControl(m message) string {
	stream, rest, _ := strings.Cut(strings.TrimPrefix(m.subject, flowControl), ".")
	reader, id, _ := strings.Cut(rest, ".")
	switch {
	case !isToken(stream) || !r.isReader(reader) || !isToken(id):
		return "this is not a reader of its own"
	case m.reply != "" || m.headerSize+m.size > 0:
		return "flow control has a content"
	}
	return ""
}

// isReader reports whether the name is one of the member's own readers.
func (r rules) isReader(name string) bool {
	id, ok := strings.CutPrefix(name, r.readers())
	return ok && isToken(id)
}

// header says why the headers are refused: the server may act on all of them but the bus's own.
func (r rules) header(header []byte) string {
	if len(header) == 0 {
		return ""
	}
	rest, ok := bytes.CutPrefix(header, []byte("NATS/1.0\r\n"))
	if !ok {
		return "the headers begin with a status"
	}
	for {
		line, next, ok := bytes.Cut(rest, []byte("\r\n"))
		switch {
		case !ok:
			return "the headers don't end"
		case len(line) == 0 && len(next) > 0:
			return "something follows the headers"
		case len(line) == 0:
			return ""
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		switch {
		case !ok || bytes.ContainsAny(line, "\r\n\x00"):
			return "a header is garbled"
		case string(name) == bus.HeaderDaemon && string(bytes.TrimSpace(value)) != r.member:
			return "it claims to be from another daemon"
		case string(name) != layout.NATSTTL && !bytes.HasPrefix(name, []byte("Kubelot-")):
			return "the header " + string(name)
		}
		rest = next
	}
}

// request is what the server gets for a request to its API, or why it is refused.
func (r rules) request(subject string, payload []byte) ([]byte, string) {
	stream, isInfo := strings.CutPrefix(subject, streamInfo)
	switch {
	case isInfo && isToken(stream):
		if len(payload) > 0 && string(payload) != "{}" {
			return nil, "it asks for more than the stream itself"
		}
		return payload, ""
	case strings.HasPrefix(subject, directGet) && isLiteral(subject):
		if len(payload) > 0 {
			return nil, "it asks for more than the last message"
		}
		return payload, ""
	case strings.HasPrefix(subject, createReader):
		return r.createReader(strings.TrimPrefix(subject, createReader), payload)
	}
	return nil, "no reader needs this request"
}
