package csidriver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// CallLog is the file of the calls of the driver with that state directory.
func CallLog(state string) string { return filepath.Join(state, "calls.jsonl") }

// Call is a line of the log: the begin of a call, or its end. A driver that dies leaves a begin without an end.
type Call struct {
	ID     int64     `json:"id"`
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	// Request belongs to the begin; it has all that the node agent sent, secrets too.
	Request json.RawMessage `json:"request,omitempty"`
	// Start is true where a process of the driver begins, HungUp where the node agent has closed its connection, Gone
	// where the caller waits no longer for the call's end.
	Start  bool `json:"start,omitempty"`
	HungUp bool `json:"hungUp,omitempty"`
	Gone   bool `json:"gone,omitempty"`
	// End is true for the end; Code and Message say how the call ended.
	End     bool   `json:"end,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// callLog appends to the log.
type callLog struct {
	mu   sync.Mutex
	file *os.File
	next int64
}

func openLog(path string) (*callLog, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	// The IDs of a process that was started again differ from those of its predecessor.
	l := &callLog{file: file, next: time.Now().UnixNano()}
	l.note(Call{Start: true})
	return l, nil
}

// note writes a line that is no begin and no end of a call.
func (l *callLog) note(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.At = time.Now()
	l.write(c)
}

func (l *callLog) begin(method string, request any) Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	c := Call{ID: l.next, At: time.Now(), Method: method}
	if m, ok := request.(proto.Message); ok {
		data, err := protojson.Marshal(m)
		if err == nil {
			c.Request = data
		}
	}
	l.write(c)
	return c
}

func (l *callLog) end(c Call, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := status.Convert(err)
	l.write(Call{ID: c.ID, At: time.Now(), Method: c.Method, End: true, Code: s.Code().String(), Message: s.Message()})
}

func (l *callLog) write(c Call) {
	data, err := json.Marshal(c)
	if err == nil {
		_, err = l.file.Write(append(data, '\n'))
	}
	if err != nil {
		// A test that can't trust the log proves nothing.
		panic(fmt.Errorf("write the log of calls: %w", err))
	}
}

// ReadCalls reads the log of the driver with that state directory.
func ReadCalls(state string) ([]Call, error) {
	data, err := os.ReadFile(CallLog(state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var calls []Call
	for line := range bytes.Lines(data) {
		var c Call
		if err := json.Unmarshal(line, &c); err != nil {
			if line[len(line)-1] != '\n' {
				break // it is being written
			}
			return nil, fmt.Errorf("line %d of the log of calls: %w", len(calls)+1, err)
		}
		calls = append(calls, c)
	}
	return calls, nil
}
