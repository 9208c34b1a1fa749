// Package screen reads what a client of the bus sends, and passes on what can't harm another client. The server's
// permissions bind a client to the subjects on which it may publish and subscribe. They don't bind where the server
// itself sends what the client asked for: the reply subject of a message, the deliver subject of a consumer, and what
// some headers ask of the server. Here each of these must be the client's own.
//
// # Reads
//
// The client's side of the NATS protocol: CONNECT, PUB, HPUB, SUB, UNSUB, PING and PONG.
//
// # Writes
//
// The same commands in its own words, so that the server reads nothing that was not understood here.
//
// # Guarantees
//
//   - A message's reply subject is the sender's own inbox, or one for the reply to this very call.
//   - A reader on the bus (a consumer) has the sender's name, delivers to the sender's inbox, is bound by flow control,
//     and is forgotten soon after its reader has gone. Of what else a consumer can do, nothing is possible.
//   - Of the server's API, a client reaches what it needs for reading, with no other parameters than these.
//   - Headers on which the server acts don't pass, except for the one that lets a tombstone expire. The header that
//     names the sender names the sender.
//   - A message that is refused becomes a message on a subject that nobody may publish on. So the client gets the
//     server's refusal, in the order of its messages. Whatever isn't the protocol ends the connection.
package screen

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"kubelot.dev/bus/internal/layout"
)

const (
	// lineSize is how long a command may be without its payload; the server's own limit is 4 KiB. The buffers are as
	// large.
	lineSize = 4 << 10
	// bufferSize is the size of the buffer for what is read, and of that for what is written.
	bufferSize = 8 << 10
	// maxHeader bounds a message's headers, maxRequest a request to the server's API.
	maxHeader, maxRequest = 16 << 10, 16 << 10
)

// Screen says who the clients are.
type Screen struct {
	// Admit returns the name of the member that has the public key, or "" if none has; the server refuses that one. An
	// error ends the connection. It is called at most once.
	Admit func(key string) (string, error)
	// Refused is told of each message and subscription that was refused, and why.
	Refused func(member, what string)
	// MaxPayload is how large a message may be, in bytes.
	MaxPayload int
}

// Copy passes on what the client sends until it ends, or sends what isn't the protocol.
func (s *Screen) Copy(to io.Writer, from io.Reader) error {
	c := &client{screen: s, in: bufio.NewReaderSize(from, bufferSize), out: bufio.NewWriterSize(to, bufferSize)}
	for {
		if c.in.Buffered() == 0 {
			if err := c.out.Flush(); err != nil {
				return err
			}
		}
		if err := c.command(); err != nil {
			return errors.Join(err, c.out.Flush())
		}
	}
}

// client is one connection.
type client struct {
	screen    *Screen
	in        *bufio.Reader
	out       *bufio.Writer
	connected bool
	rules     rules
}

// command passes on one command with its payload.
func (c *client) command() error {
	verb, args, err := readCommand(c.in)
	if err != nil {
		return err
	}
	if !c.connected && verb != "CONNECT" {
		return fmt.Errorf("%w: the first command is %q", ErrProtocol, verb)
	}
	switch verb {
	case "CONNECT":
		return c.connect(args)
	case "PUB", "HPUB":
		m, err := parsePublish(verb, fields(args), c.screen.MaxPayload)
		if err != nil {
			return err
		}
		return c.publish(m)
	case "SUB":
		return c.subscribe(fields(args))
	case "UNSUB":
		return c.unsubscribe(fields(args))
	case "PING", "PONG":
		return c.write(verb)
	}
	return fmt.Errorf("%w: the command %q", ErrProtocol, verb)
}

// connect is all that a client may say of itself.
type connect struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	Echo         bool   `json:"echo"`
	Nkey         string `json:"nkey"`
	Sig          string `json:"sig"`
	Name         string `json:"name"`
	Lang         string `json:"lang"`
	Version      string `json:"version"`
	Protocol     int    `json:"protocol"`
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
}

// connect learns who the client is. The server checks that it is, and takes nothing else from it if it isn't.
func (c *client) connect(args []byte) error {
	if c.connected {
		return fmt.Errorf("%w: a second CONNECT", ErrProtocol)
	}
	said := connect{Echo: true}
	if err := json.Unmarshal(args, &said); err != nil {
		return fmt.Errorf("%w: CONNECT: %w", ErrProtocol, err)
	}
	said.Pedantic = false
	name, err := c.screen.Admit(said.Nkey)
	if err != nil {
		return err
	}
	c.connected, c.rules = true, rules{member: name}
	data, err := json.Marshal(said)
	if err != nil {
		return fmt.Errorf("encode CONNECT: %w", err)
	}
	return c.write("CONNECT", string(data))
}

// publish passes on a message, or the server's refusal of one.
func (c *client) publish(m message) error {
	if m.headerSize > 0 {
		m.header = make([]byte, m.headerSize)
		if _, err := io.ReadFull(c.in, m.header); err != nil {
			return err
		}
	}
	if why := c.rules.message(m); why != "" {
		return c.refuse(m, why)
	}
	if isRequest(m.subject) {
		return c.request(m)
	}
	if err := c.writePublish(m); err != nil {
		return err
	}
	if _, err := io.CopyN(c.out, c.in, int64(m.size)); err != nil {
		return err
	}
	if err := c.endOfPayload(); err != nil {
		return err
	}
	_, err := c.out.WriteString("\r\n")
	return err
}

// request passes on a request to the server's API in the screen's own words.
func (c *client) request(m message) error {
	payload := make([]byte, m.size)
	if _, err := io.ReadFull(c.in, payload); err != nil {
		return err
	}
	payload, why := c.rules.request(m.subject, payload)
	if why != "" {
		m.size = 0
		return c.refuse(m, why)
	}
	if err := c.endOfPayload(); err != nil {
		return err
	}
	m.size = len(payload)
	if err := c.writePublish(m); err != nil {
		return err
	}
	_, _ = c.out.Write(payload)
	_, err := c.out.WriteString("\r\n") // it has the error of the write before
	return err
}

// writePublish writes the command and the headers of m; the payload follows.
func (c *client) writePublish(m message) error {
	words := []string{"PUB", m.subject}
	if m.reply != "" {
		words = append(words, m.reply)
	}
	if m.headerSize > 0 {
		words[0] = "HPUB"
		words = append(words, strconv.Itoa(m.headerSize))
	}
	if err := c.write(append(words, strconv.Itoa(m.headerSize+m.size))...); err != nil {
		return err
	}
	_, err := c.out.Write(m.header)
	return err
}

// refuse drops the rest of m and has the server refuse it.
func (c *client) refuse(m message, why string) error {
	c.screen.Refused(c.rules.member, fmt.Sprintf("publish on %s: %s", m.subject, why))
	if _, err := io.CopyN(io.Discard, c.in, int64(m.size)); err != nil {
		return err
	}
	if err := c.endOfPayload(); err != nil {
		return err
	}
	if err := c.write("PUB", refused(m.subject), "0"); err != nil {
		return err
	}
	_, err := c.out.WriteString("\r\n")
	return err
}

// subscribe passes on a subscription; what it may name is the server's to decide. No daemon shares a subscription with
// others, which is what the optional argument in the middle is for.
func (c *client) subscribe(args []string) error {
	switch {
	case len(args) == 2 && isToken(args[1]):
		return c.write("SUB", args[0], args[1])
	case len(args) == 3 && isToken(args[2]):
		c.screen.Refused(c.rules.member, "subscribe to "+args[0]+" in a group")
		return c.write("SUB", refused(args[0]), args[2])
	}
	return fmt.Errorf("%w: SUB has %d arguments", ErrProtocol, len(args))
}

func (c *client) unsubscribe(args []string) error {
	if len(args) < 1 || len(args) > 2 || !isToken(args[0]) {
		return fmt.Errorf("%w: UNSUB has %d arguments", ErrProtocol, len(args))
	}
	if len(args) == 2 {
		if _, err := parseSize(args[1]); err != nil {
			return err
		}
	}
	return c.write(append([]string{"UNSUB"}, args...)...)
}

// endOfPayload reads the end of line behind a payload.
func (c *client) endOfPayload() error {
	var end [2]byte
	if _, err := io.ReadFull(c.in, end[:]); err != nil {
		return err
	}
	if string(end[:]) != "\r\n" {
		return fmt.Errorf("%w: a payload is longer than its size says", ErrProtocol)
	}
	return nil
}

// write writes one line. An error of the buffered writer stays, so that looking at the last one is enough.
func (c *client) write(words ...string) error {
	for i, word := range words {
		if i > 0 {
			_ = c.out.WriteByte(' ')
		}
		_, _ = c.out.WriteString(word)
	}
	_, err := c.out.WriteString("\r\n")
	return err
}

// refused is a subject that nobody may publish on or subscribe to.
func refused(subject string) string {
	if len(subject) > lineSize/2 {
		return layout.RefusedPrefix + "too-long"
	}
	return layout.RefusedPrefix + subject
}
