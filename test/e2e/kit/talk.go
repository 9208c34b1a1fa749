package kit

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// TalkPod is a pod that writes numbered lines, for Talk.
const TalkPod = `
apiVersion: v1
kind: Pod
metadata: {name: talk}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done']
`

// Talk is somebody in TalkPod, and somebody who follows its log.
type Talk struct {
	t     *testing.T
	shell *Session
	log   *Session
	in    *io.PipeWriter
}

// Talk opens a shell in TalkPod and follows its log, and waits until both work.
func (n *Namespace) Talk(t *testing.T) *Talk {
	t.Helper()
	n = n.In(t)
	s := &Talk{t: t}
	// On a slow machine the API server's time for a connection may pass.
	Eventually(t, "a shell in the pod", func() error {
		in, out := io.Pipe()
		s.in, s.shell = out, n.Session(nil, in, "exec", "-i", "talk", "--", "sh")
		// kubectl is waited for until nobody can write to it any more.
		t.Cleanup(func() { _ = out.Close() })
		return s.shell.answers(out, "before")
	})
	Eventually(t, "the pod's log", func() error {
		s.log = n.Session(nil, nil, "logs", "-f", "--tail=1", "talk")
		return s.log.writes("line ")
	})
	return s
}

// GoesOn checks that the same shell answers and that no line of the log was lost or doubled, and ends both.
func (s *Talk) GoesOn() {
	s.t.Helper()
	s.works()
	s.whole()
	s.Close()
}

// works checks that the shell answers and that the log grows.
func (s *Talk) works() {
	s.t.Helper()
	if err := s.shell.answers(s.in, "after"); err != nil {
		s.t.Fatal(err)
	}
	var last int
	Eventually(s.t, "a line of the log", func() error {
		lines := strings.Split(s.log.String(), "\n")
		_, err := fmt.Sscanf(lines[max(0, len(lines)-2)], "line %d", &last)
		return err
	})
	s.log.Shows(fmt.Sprintf("line %d\n", last+2))
}

// answers is an exchange with a shell.
func (s *Session) answers(in io.Writer, word string) error {
	if _, err := io.WriteString(in, "echo "+word+"\n"); err != nil {
		return err
	}
	return s.writes(word + "\n")
}

func (s *Talk) whole() {
	s.t.Helper()
	text := s.log.String()
	before := 0
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
		var number int
		if _, err := fmt.Sscanf(line, "line %d", &number); err != nil || before > 0 && number != before+1 {
			s.t.Errorf("after line %d of the log comes %q", before, line)
			return
		}
		before = number
	}
}

// Close ends the shell and the log.
func (s *Talk) Close() {
	_ = s.in.Close() // it never fails
	s.shell.Kill()
	s.log.Kill()
}
