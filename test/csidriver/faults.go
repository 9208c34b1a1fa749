package csidriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Fault is what goes wrong with the next calls of a method.
type Fault struct {
	// Times is how many calls it concerns; 0 means all until it is removed.
	Times int `json:"times,omitempty"`
	// DelaySeconds passes before anything else.
	DelaySeconds float64 `json:"delaySeconds,omitempty"`
	// Hang has the call do nothing until its caller gives up, or until SetFault says of the method what becomes of the
	// call, with Times.
	Hang bool `json:"hang,omitempty"`
	// Code is the gRPC code that is answered. With Done the call is made nevertheless.
	Code codes.Code `json:"code,omitempty"`
	Done bool       `json:"done,omitempty"`
	// Message goes with the code.
	Message string `json:"message,omitempty"`
	// Kill ends the driver by SIGKILL, "before" or "after" it has done what it was called for, without an answer.
	Kill string `json:"kill,omitempty"`
}

// SetFault has calls of a method go wrong at the driver with that state directory; a nil fault ends that.
func SetFault(state, method string, f *Fault) error {
	path := filepath.Join(state, "faults", method)
	if f == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// faults reads what is to go wrong.
type faults struct {
	dir string
	mu  sync.Mutex
}

// read is the fault that is set for the method.
func (f *faults) read(method string) (fault Fault, err error) {
	data, err := os.ReadFile(filepath.Join(f.dir, method))
	if errors.Is(err, fs.ErrNotExist) {
		return fault, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &fault)
	}
	return fault, err
}

// take is the fault of the next call of the method, and counts it.
func (f *faults) take(method string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault, err := f.read(method)
	if err == nil && fault.Times > 0 {
		left := fault
		if left.Times--; left.Times == 0 {
			err = SetFault(filepath.Dir(f.dir), method, nil)
		} else {
			err = SetFault(filepath.Dir(f.dir), method, &left)
		}
	}
	if err != nil {
		panic(fmt.Errorf("read the fault of %s: %w", method, err))
	}
	return fault
}

// hang waits for what becomes of a call that hangs.
func (f *faults) hang(ctx context.Context, method string, hangs Fault) Fault {
	for {
		select {
		case <-ctx.Done():
			return hangs
		case <-time.After(20 * time.Millisecond):
			if next, err := f.read(method); err == nil && !next.Hang && next.Times > 0 {
				return f.take(method)
			}
		}
	}
}

// around does the call with the fault.
func (f Fault) around(ctx context.Context, do func() (any, error)) (any, error) {
	if f.DelaySeconds > 0 {
		select {
		case <-time.After(time.Duration(f.DelaySeconds * float64(time.Second))):
		case <-ctx.Done():
		}
	}
	if f.Hang {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if f.Kill == "before" {
		die()
	}
	if f.Code != codes.OK && !f.Done {
		return nil, status.Error(f.Code, f.Message)
	}
	answer, err := do()
	if f.Kill == "after" {
		die()
	}
	if err == nil && f.Code != codes.OK {
		return nil, status.Error(f.Code, f.Message)
	}
	return answer, err
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
