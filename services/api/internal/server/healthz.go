package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"kubelot.dev/services/api/internal/state"
)

// check is one of the checks of /healthz.
type check struct {
	name string
	run  func(r *http.Request) error
}

// checks are the kubelet's. That this process answers and can log is what the first two say.
func (s *Service) checks() []check {
	fine := func(*http.Request) error { return nil }
	looked := func(look func(w *state.State, now time.Time) error) func(*http.Request) error {
		return func(r *http.Request) error {
			problem, err := ask(r.Context(), s, func(w *state.State) error { return look(w, time.Now()) })
			return cmp.Or(err, problem)
		}
	}
	return []check{
		{"ping", fine},
		{"log", fine},
		{"syncloop", looked((*state.State).SyncLoop)},
		{"device-plugin", looked(devicePlugins)},
	}
}

// devicePlugins says why device plugins can't register: the daemon that they register with doesn't work, or says why.
// One that sleeps is woken by them.
func devicePlugins(w *state.State, now time.Time) error {
	if err := w.Works("resource", now); err != nil {
		return err
	}
	if why := w.Resources[""].RegistrationError; why != "" {
		return fmt.Errorf("device plugins can't register: %s", why)
	}
	return nil
}

// healthz adds /healthz and a path for each check.
func (s *Service) healthz(mux *http.ServeMux) {
	checks := s.checks()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { s.getHealthz(w, r, checks) })
	for _, c := range checks {
		mux.HandleFunc("GET /healthz/"+c.name, func(w http.ResponseWriter, r *http.Request) {
			if err := c.run(r); err != nil {
				http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
				return
			}
			_, _ = w.Write([]byte("ok"))
		})
	}
}

// getHealthz answers in the form of all Kubernetes components. Only a check's own path says why it fails.
func (s *Service) getHealthz(w http.ResponseWriter, r *http.Request, checks []check) {
	query := r.URL.Query()
	excluded := query["exclude"]
	var out strings.Builder
	failed := false
	for _, c := range checks {
		if i := slices.Index(excluded, c.name); i >= 0 {
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.name)
			excluded = slices.Delete(excluded, i, i+1)
			continue
		}
		err := c.run(r)
		s.metrics.checked(c.name, err)
		if err != nil {
			failed = true
			fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", c.name)
			s.env.Log.Debug("health check failed", "check", c.name, "error", err)
			continue
		}
		fmt.Fprintf(&out, "[+]%s ok\n", c.name)
	}
	if len(excluded) > 0 {
		fmt.Fprintf(&out, "warn: some health checks cannot be excluded: no matches for %q\n", excluded)
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, verbose := query["verbose"]
	switch {
	case failed:
		http.Error(w, out.String()+"healthz check failed", http.StatusInternalServerError)
	case verbose:
		fmt.Fprintf(w, "%shealthz check passed\n", out.String())
	default:
		fmt.Fprint(w, "ok")
	}
}
