package server

import (
	"encoding/json"
	"net/http"
	"net/http/pprof"
	goruntime "runtime"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// open are the paths that the read-only port has too.
func (s *Service) open(mux *http.ServeMux) {
	s.healthz(mux)
	mux.HandleFunc("GET /pods", s.getPods)
	mux.HandleFunc("GET /pods/{$}", s.getPods)
	for _, method := range []string{"GET", "POST"} {
		mux.HandleFunc(method+" /stats/summary", s.getSummary)
	}
	mux.Handle("GET /metrics", compressed(s.gather))
	mux.Handle("GET /metrics/resource", compressed(page("stats", s.env.Config.RunDir, pagePatience)))
	mux.Handle("GET /metrics/cadvisor", compressed(page("stats", s.env.Config.RunDir, pagePatience)))
	mux.Handle("GET /metrics/probes", compressed(page("probe", s.env.Config.RunDir, pagePatience)))
	mux.Handle("GET /metrics/slis", promhttp.HandlerFor(s.metrics.slis, promhttp.HandlerOpts{}))
}

// readOnly are the paths of the read-only port.
func (s *Service) readOnly() http.Handler {
	mux := http.NewServeMux()
	s.open(mux)
	return s.metrics.count("readonly", mux)
}

// routes are the paths of the HTTPS port.
func (s *Service) routes() http.Handler {
	mux := http.NewServeMux()
	s.open(mux)
	k := s.env.Config.Kubelet
	if !*k.EnableDebuggingHandlers {
		for _, path := range []string{
			"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/",
			"/debug/pprof/", "/logs/",
		} {
			mux.HandleFunc(path, disabled("Debug endpoints are disabled."))
		}
		s.zpages(mux)
		return mux
	}
	for _, method := range []string{"GET", "POST", "HEAD"} {
		getExec, getAttach, getPortForward := s.getExec, s.getAttach, s.getPortForward
		if method == http.MethodHead {
			// A pattern for GET serves HEAD, too.
			none := disabled("A stream has no headers to be asked for.")
			getExec, getAttach, getPortForward = none, none, none
		}
		for _, container := range []string{"/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"} {
			mux.HandleFunc(method+" /exec"+container, getExec)
			mux.HandleFunc(method+" /attach"+container, getAttach)
			if method == http.MethodPost {
				mux.HandleFunc(method+" /run"+container, s.getRun)
			}
		}
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}", getPortForward)
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}/{uid}", getPortForward)
	}
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.getContainerLogs)
	mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	mux.HandleFunc("GET /configz", s.getConfig)
	mux.HandleFunc("GET /runningpods/{$}", s.getRunningPods)
	s.logFiles(mux)
	s.profiles(mux)
	s.verbosity(mux)
	s.zpages(mux)
	return mux
}

func disabled(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) }
}

// profiles are this daemon's; the others serve theirs next to their metrics with --profiling.
func (s *Service) profiles(mux *http.ServeMux) {
	k := s.env.Config.Kubelet
	if !*k.EnableProfilingHandler {
		mux.HandleFunc("/debug/pprof/", disabled("profiling endpoint is disabled."))
		return
	}
	mux.HandleFunc("GET /debug/pprof/", func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
		case "profile":
			pprof.Profile(w, r)
		case "symbol":
			pprof.Symbol(w, r)
		case "cmdline":
			pprof.Cmdline(w, r)
		case "trace":
			pprof.Trace(w, r)
		default:
			pprof.Index(w, r)
		}
	})
	if k.EnableContentionProfiling {
		goruntime.SetBlockProfileRate(1)
	}
}

// getConfig shows the effective configuration.
func (s *Service) getConfig(w http.ResponseWriter, _ *http.Request) {
	c := *s.env.Config.Kubelet.DeepCopy()
	// The headers authenticate the node to the owner of its static pods, and so may the address.
	for name := range c.StaticPodURLHeader {
		c.StaticPodURLHeader[name] = []string{masked}
	}
	c.StaticPodURL = withoutSecrets(c.StaticPodURL)
	s.answer(w, map[string]any{"kubeletconfig": c})
}

// answer writes a value as JSON.
func (s *Service) answer(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that went away is nobody to tell.
	_, _ = w.Write(data)
}

// fail answers with the error's text, as the kubelet does.
func fail(w http.ResponseWriter, code int, err error) {
	w.WriteHeader(code)
	_, _ = w.Write([]byte(err.Error()))
}
