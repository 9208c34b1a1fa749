package embed

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// natsLog hands the embedded server's log to slog. Its notices are this daemon's debug messages.
type natsLog struct {
	log *slog.Logger
	// trouble has a signal once the server has logged an error; see signal.
	trouble chan struct{}

	mu   sync.Mutex
	last error
	// gaveUp is true once the server has given up.
	gaveUp bool
}

func newNatsLog(log *slog.Logger) *natsLog {
	return &natsLog{log: log, trouble: make(chan struct{}, 1)}
}

func (l *natsLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *natsLog) Debugf(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *natsLog) Tracef(format string, v ...any)  { l.log.Debug(fmt.Sprintf(format, v...)) }

func (l *natsLog) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Maximum payloads over") {
		return // bus.MaxPayload is what pods need
	}
	l.log.Warn(fmt.Sprintf(format, v...))
}

func (l *natsLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	l.last = errors.New(text)
	l.mu.Unlock()
	l.log.Error(text)
	l.signal()
}

// signal has the guard look at the store.
func (l *natsLog) signal() {
	select {
	case l.trouble <- struct{}{}:
	default:
	}
}

// Fatalf doesn't exit: the start notices that the server isn't there, and says why.
func (l *natsLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	l.gaveUp = true
	l.mu.Unlock()
	l.Errorf(format, v...)
}

// fatal reports whether the server has given up.
func (l *natsLog) fatal() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gaveUp
}

// lastError is the last error the server logged.
func (l *natsLog) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		return errors.New("it gives no reason")
	}
	return l.last
}
