package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"kubelot.dev/daemon"
	"kubelot.dev/services/api/internal/gather"
)

// verbosityPatience is how long a daemon may take to change its log's verbosity. It is a variable for tests only.
var verbosityPatience = 3 * time.Second

// verbosity changes how much all daemons log, until they end.
func (s *Service) verbosity(mux *http.ServeMux) {
	if on := s.env.Config.Kubelet.EnableDebugFlagsHandler; on != nil && !*on {
		mux.HandleFunc(daemon.VerbosityPath, disabled("flags endpoint is disabled."))
		return
	}
	mux.HandleFunc(daemon.VerbosityPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			http.Error(w, "unsupported http method", http.StatusNotAcceptable)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
		if err != nil {
			http.Error(w, "error reading request body: "+err.Error(), http.StatusBadRequest)
			return
		}
		v, err := daemon.ParseVerbosity(string(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := s.setVerbosity(r.Context(), strconv.Itoa(int(v))); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		// A client that went away is nobody to tell.
		_, _ = fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", v)
	})
}

// setVerbosity has every daemon change. Those that can be reached do so, also where others can't.
func (s *Service) setVerbosity(ctx context.Context, v string) error {
	ctx, cancel := context.WithTimeout(ctx, verbosityPatience)
	defer cancel()
	daemons := s.gather.Daemons()
	errs := make([]error, len(daemons))
	var wg sync.WaitGroup
	for i, name := range daemons {
		wg.Go(func() {
			if err := putVerbosity(ctx, s.env.Config.RunDir, name, v); err != nil {
				errs[i] = fmt.Errorf("verbosity of kubelot-%s: %w", name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func putVerbosity(ctx context.Context, runDir, name, v string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+name+daemon.VerbosityPath,
		strings.NewReader(v))
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: gather.Transport(runDir, name)}).Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	// One that sleeps (503) logs nothing, and wakes with the verbosity of its command line, as after a restart.
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}
