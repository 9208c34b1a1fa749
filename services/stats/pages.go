package stats

import (
	"encoding/json"
	"net/http"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/stats/internal/text"
)

// The paths on the daemon's socket, which are the kubelet's own.
const (
	pageSummary  = "/stats/summary"
	pageResource = "/metrics/resource"
	pageCadvisor = "/metrics/cadvisor"
)

// pages serves the HTTP pages next to the daemon's own metrics.
func (s *Service) pages() {
	if s.env.Pages == nil {
		return
	}
	s.env.Pages.HandleFunc("GET "+pageSummary, s.summaryPage)
	s.env.Pages.HandleFunc("GET "+pageResource, s.resourcePage)
	s.env.Pages.HandleFunc("GET "+pageCadvisor, s.cadvisorPage)
}

// summaryPage is the summary API for people with curl; programs use the call on the bus or api.
func (s *Service) summaryPage(w http.ResponseWriter, r *http.Request) {
	summary, err := s.answers.reply(r.Context(),
		topic.SummaryRequest{OnlyCPUAndMemory: r.FormValue("only_cpu_and_memory") == "true"})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(summary); err != nil {
		s.env.Log.Debug("the client of the summary has gone", "error", err)
	}
}

func (s *Service) resourcePage(w http.ResponseWriter, r *http.Request) {
	defer s.answers.report.answered("resource metrics", time.Now())
	var summary *statsapi.Summary
	if made, err := s.answers.summary(r.Context(), topic.SummaryRequest{OnlyCPUAndMemory: true}, 0); err == nil {
		summary = &made
	}
	w.Header().Set("Content-Type", text.ContentType)
	if err := writeResource(w, summary); err != nil {
		s.env.Log.Debug("the client of the resource metrics has gone", "error", err)
	}
}

func (s *Service) cadvisorPage(w http.ResponseWriter, r *http.Request) {
	defer s.answers.report.answered("cadvisor metrics", time.Now())
	in, err := s.answers.metrics(r.Context(), s.ooms)
	if err != nil {
		s.env.Log.Debug("can't read the metrics of containers", "error", err)
	}
	w.Header().Set("Content-Type", text.ContentType)
	if err := writeCadvisor(w, in); err != nil {
		s.env.Log.Debug("the client of the metrics has gone", "error", err)
	}
}
