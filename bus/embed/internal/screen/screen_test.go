package screen

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

const hello = `CONNECT {"nkey":"U1","sig":"s","verbose":false,"pedantic":true,"headers":true,"jwt":"x",` +
	`"user":"admin"}` + "\r\n"

// through is what the server gets of what a client sends, without the CONNECT.
func through(t *testing.T, sent string) (got string, refusals []string, err error) {
	t.Helper()
	s := Screen{
		MaxPayload: 1 << 20,
		Admit: func(key string) (string, error) {
			if key == "U1" {
				return "gc", nil
			}
			return "", nil
		},
		Refused: func(_, what string) { refusals = append(refusals, what) },
	}
	var out bytes.Buffer
	err = s.Copy(&out, strings.NewReader(sent))
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	_, got, _ = strings.Cut(out.String(), "\r\n")
	return got, refusals, err
}

func TestCommands(t *testing.T) {
	for name, c := range map[string]struct {
		sent, got string
		refused   string // part of why
		broken    bool   // it ends the connection
	}{
		"publish":             {sent: "PUB a.b 3\r\nabc\r\n", got: "PUB a.b 3\r\nabc\r\n"},
		"other words":         {sent: "pub\ta.b   _INBOX.gc.1 0\n\r\n", got: "PUB a.b _INBOX.gc.1 0\r\n\r\n"},
		"a line in a payload": {sent: "PUB a 12\r\nPUB b 0\r\n\r\nx\r\n", got: "PUB a 12\r\nPUB b 0\r\n\r\nx\r\n"},
		"a call":              {sent: "PUB a.b _REPLY.gc.a.b.x1 0\r\n\r\n", got: "PUB a.b _REPLY.gc.a.b.x1 0\r\n\r\n"},
		"headers": {
			sent: "HPUB a 32 34\r\nNATS/1.0\r\nKubelot-Daemon: gc\r\n\r\nhi\r\n",
			got:  "HPUB a 32 34\r\nNATS/1.0\r\nKubelot-Daemon: gc\r\n\r\nhi\r\n",
		},
		"subscribe, ping": {sent: "SUB > 1\r\nPING\r\nUNSUB 1 2\r\n", got: "SUB > 1\r\nPING\r\nUNSUB 1 2\r\n"},
		"reply to another": {
			sent: "PUB a _INBOX.api.1 2\r\nhi\r\nPING\r\n", got: "PUB _REFUSED.a 0\r\n\r\nPING\r\n", refused: "_INBOX.api.1",
		},
		"reply to a prefix":     {sent: "PUB a _INBOX.gc2.1 0\r\n\r\n", got: "PUB _REFUSED.a 0\r\n\r\n", refused: "reply"},
		"reply to a pattern":    {sent: "PUB a _INBOX.gc.> 0\r\n\r\n", got: "PUB _REFUSED.a 0\r\n\r\n", refused: "reply"},
		"reply to another call": {sent: "PUB a _REPLY.gc.b.x 0\r\n\r\n", got: "PUB _REFUSED.a 0\r\n\r\n", refused: "reply"},
		"a pattern":             {sent: "PUB a.* 0\r\n\r\n", got: "PUB _REFUSED.a.* 0\r\n\r\n", refused: "pattern"},
		"another's flow control": {
			sent: "PUB $JS.FC.S.kubelot-api-1.x 0\r\n\r\n",
			got:  "PUB _REFUSED.$JS.FC.S.kubelot-api-1.x 0\r\n\r\n", refused: "own",
		},
		"own flow control": {
			sent: "PUB $JS.FC.S.kubelot-gc-1.x 0\r\n\r\n",
			got:  "PUB $JS.FC.S.kubelot-gc-1.x 0\r\n\r\n",
		},
		"a group": {sent: "SUB a g 1\r\n", got: "SUB _REFUSED.a 1\r\n", refused: "group"},
		"the server's own": {
			sent: "PUB $SYS.REQ 0\r\n\r\n",
			got:  "PUB _REFUSED.$SYS.REQ 0\r\n\r\n", refused: "server's own",
		},
		"a status": {
			sent: "HPUB a 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
			got:  "PUB _REFUSED.a 0\r\n\r\n", refused: "status",
		},
		"a header of the server": {
			sent: "HPUB a 30 30\r\nNATS/1.0\r\nNats-Rollup: all\r\n\r\n\r\n",
			got:  "PUB _REFUSED.a 0\r\n\r\n", refused: "Nats-Rollup",
		},
		"another's name": {
			sent: "HPUB a 33 33\r\nNATS/1.0\r\nKubelot-Daemon: api\r\n\r\n\r\n", got: "PUB _REFUSED.a 0\r\n\r\n",
			refused: "another daemon",
		},
		"a second CONNECT":        {sent: hello, broken: true},
		"a negative size":         {sent: "PUB a -1\r\n", broken: true},
		"a size that overflows":   {sent: "PUB a 99999999999999999999\r\n", broken: true},
		"a payload that is large": {sent: "PUB a 1048577\r\n", broken: true},
		"a longer payload":        {sent: "PUB a 1\r\nabc\r\n", got: "PUB a 1\r\na", broken: true},
		"headers beyond the size": {sent: "HPUB a 9 3\r\n", broken: true},
		"a control character":     {sent: "PUB a\x00b 0\r\n\r\n", broken: true},
		"another protocol":        {sent: "GET / HTTP/1.1\r\n\r\n", broken: true},
		"a route's message":       {sent: "RMSG a b 0\r\n\r\n", broken: true},
		"a long line":             {sent: "PUB " + strings.Repeat("a", 5000) + " 0\r\n", broken: true},
		"a long subject": {
			sent: "PUB " + strings.Repeat("a", 3000) + ".> 0\r\n\r\n",
			got:  "PUB _REFUSED.too-long 0\r\n\r\n", refused: "pattern",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, refusals, err := through(t, hello+c.sent)
			if (err != nil) != c.broken || !c.broken && got != c.got {
				t.Errorf("%q became %q, %v; want %q", c.sent, got, err, c.got)
			}
			if c.broken && !errors.Is(err, ErrProtocol) {
				t.Errorf("the connection ends with %v", err)
			}
			if text := strings.Join(refusals, ""); (c.refused == "") != (text == "") || !strings.Contains(text, c.refused) {
				t.Errorf("refused: %q; want %q", text, c.refused)
			}
		})
	}
}

// The server doesn't read what the screen doesn't know, and an unknown client sends nothing.
func TestConnect(t *testing.T) {
	s := Screen{Admit: func(string) (string, error) { return "gc", nil }, Refused: func(string, string) {}}
	var out bytes.Buffer
	if err := s.Copy(&out, strings.NewReader(hello)); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if got := out.String(); strings.Contains(got, "jwt") || strings.Contains(got, "admin") ||
		!strings.Contains(got, `"nkey":"U1"`) {
		t.Errorf("the server gets %s", got)
	}
	if _, _, err := through(t, "PING\r\n"); !errors.Is(err, ErrProtocol) {
		t.Errorf("a command before CONNECT: %v", err)
	}
	got, refusals, err := through(t, strings.Replace(hello, "U1", "U2", 1)+"PUB a 0\r\n\r\nSUB a 1\r\n")
	if got != "PUB _REFUSED.a 0\r\n\r\nSUB a 1\r\n" || len(refusals) != 1 || err != nil {
		t.Errorf("an unknown client: %q %q %v", got, refusals, err)
	}
}

const reader = `{"stream_name":"STATE","config":{"name":"kubelot-gc-1","filter_subject":"a.*",` +
	`"deliver_subject":"_INBOX.gc.1",` +
	`"deliver_policy":"all","ack_policy":"none","replay_policy":"instant","flow_control":true,` +
	`"idle_heartbeat":45000000000,` +
	`"inactive_threshold":5000000000,"mem_storage":true,"num_replicas":1}}`

func TestReaders(t *testing.T) {
	const subject = "$JS.API.CONSUMER.CREATE.STATE.kubelot-gc-1.a.*"
	r := rules{member: "gc"}
	same, why := r.request(subject, []byte(reader))
	if string(same) != reader || why != "" {
		t.Errorf("a good request: %s %q", same, why)
	}
	for old, other := range map[string]string{
		"_INBOX.gc.1": "pod.update.x", `"idle_heartbeat":45000000000`: `"idle_heartbeat":1`,
		`"flow_control":true`: `"flow_control":false`, `"filter_subject":"a.*"`: `"filter_subject":">"`,
		`"name":"kubelot-gc-1"`: `"name":"kubelot-gc-2"`, `"ack_policy":"none"`: `"ack_policy":"explicit"`,
		`"mem_storage":true`: `"mem_storage":false`, `"num_replicas":1`: `"num_replicas":1,"durable_name":"x"`,
		`"deliver_policy":"all"`: `"deliver_policy":"last"`, `"stream_name":"STATE"`: `"stream_name":"OWN"`,
		`"inactive_threshold":5000000000`: `"inactive_threshold":0`, "}}": "}}{}",
	} {
		if _, why := r.request(subject, []byte(strings.Replace(reader, old, other, 1))); why == "" {
			t.Errorf("%s instead of %s isn't refused", other, old)
		}
	}
	// Of two values the last counts, for the screen and so for the server.
	twice := strings.Replace(reader, `"name"`, `"DELIVER_SUBJECT":"pod.update.x","name"`, 1)
	if got, why := r.request(subject, []byte(twice)); why != "" || string(got) != reader {
		t.Errorf("two deliver subjects: %s %q", got, why)
	}
	for _, other := range []string{
		"$JS.API.CONSUMER.CREATE.STATE", "$JS.API.CONSUMER.CREATE.STATE.kubelot-gc-1", "$JS.API.STREAM.DELETE.STATE",
		"$JS.API.CONSUMER.CREATE.STATE.kubelot-api-1.a.*", "$JS.API.CONSUMER.DURABLE.CREATE.STATE.kubelot-gc-1",
		"$JS.API.INFO",
	} {
		if _, why := r.request(other, []byte(reader)); why == "" {
			t.Errorf("%s isn't refused", other)
		}
	}
}

// Whatever is sent, the server gets messages only that the rules allow.
func FuzzCopy(f *testing.F) {
	for _, seed := range []string{
		"PUB a _INBOX.api.1 2\r\nhi\r\n", "HPUB a 32 34\r\nNATS/1.0\r\nKubelot-Daemon: gc\r\n\r\nhi\r\n", "PUB a\t1\n\n\r\n",
		"PUB $JS.API.CONSUMER.CREATE.STATE.kubelot-gc-1.a.* _INBOX.gc.1 " + strconv.Itoa(len(reader)) + "\r\n" + reader +
			"\r\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		got, _, _ := through(t, hello+sent)
		in := bufio.NewReader(strings.NewReader(got))
		for {
			verb, args, err := readCommand(in)
			if err != nil {
				return
			}
			if verb != "PUB" && verb != "HPUB" {
				continue
			}
			m, err := parsePublish(verb, fields(args), 1<<20)
			if err != nil {
				t.Fatalf("%q became %q: %v", sent, got, err)
			}
			if !strings.HasPrefix(m.subject, "_REFUSED.") && !(rules{member: "gc"}).mayReplyTo(m) {
				t.Fatalf("%q became %q", sent, got)
			}
			if _, err := io.CopyN(io.Discard, in, int64(m.headerSize+m.size+2)); err != nil {
				return
			}
		}
	})
}
