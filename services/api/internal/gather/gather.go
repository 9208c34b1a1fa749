// Package gather makes one page of the metrics of all daemons, each of which serves its own on a unix socket.
//
// A family that several daemons have gets the label daemon, for good once it was seen so; the others have the kubelet's
// labels and no more.
package gather

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	// patience is how long a daemon may take where the client doesn't say how long it waits; one that doesn't answer is
	// left out. On a busy node of two processors three seconds were not enough for eleven daemons.
	patience = 8 * time.Second
	// longest bounds what a client may ask for.
	longest = time.Minute
	// waits is the header in which Prometheus says for how many seconds it waits.
	waits = "X-Prometheus-Scrape-Timeout-Seconds"
	// label distinguishes the daemons.
	label = "daemon"
	// self is the daemon that this process is.
	self = "api"
)

// Gatherer serves the metrics of all daemons.
type Gatherer struct {
	dir   string
	local prometheus.Gatherer
	up    *prometheus.GaugeVec
	// formats are those that clients may ask for, accept what the daemons are asked for.
	formats []expfmt.Format
	accept  string
	// patience is that above; tests have their own.
	patience time.Duration

	mu     sync.Mutex
	shared map[string]bool // families that several daemons have
	known  map[string]bool // daemons that were seen
}

// New makes a gatherer of the daemons below runDir. It registers what it knows about them with r. local are further
// metrics of this process, which its socket doesn't show; nil for none. With exemplars it serves OpenMetrics too, the
// only text that has them.
func New(runDir string, r prometheus.Registerer, local prometheus.Gatherer, exemplars bool) *Gatherer {
	g := &Gatherer{
		formats: expfmt.DefaultAcceptedFormats(), patience: patience,
		local: local, dir: filepath.Join(runDir, "metrics"), shared: map[string]bool{}, known: map[string]bool{},
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelot_daemon_up", Help: "Whether the daemon's metrics could be read at the last scrape that gave it time.",
		}, []string{label}),
	}
	r.MustRegister(g.up)
	if exemplars {
		// The parser of texts knows no exemplars.
		g.formats, g.accept = expfmt.DefaultOpenMetricsAcceptedFormats(), string(expfmt.NewFormat(expfmt.TypeProtoDelim))
	}
	return g
}

// Transport connects to a daemon's socket, whatever the address says.
func Transport(runDir, daemon string) *http.Transport {
	return transport(filepath.Join(runDir, "metrics", daemon+".sock"))
}

func transport(socket string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
		// Nothing leaves the machine.
		DisableCompression: true,
	}
}

// answer is what one daemon has.
type answer struct {
	daemon   string
	families map[string]*dto.MetricFamily
	err      error
}

// ServeHTTP writes the metrics of all daemons in the form that the client asks for.
func (g *Gatherer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), g.patienceFor(r.Header))
	defer cancel()
	families := g.gather(ctx)
	format := expfmt.NegotiateAccept(r.Header, g.formats...)
	if format.FormatType() == expfmt.TypeOpenMetrics {
		for name, family := range families {
			keepName(name, family)
		}
	}
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if err := encoder.Encode(families[name]); err != nil {
			return
		}
	}
	if closer, ok := encoder.(expfmt.Closer); ok {
		// A client that went away is nobody to tell.
		_ = closer.Close()
	}
}

// patienceFor is how long the daemons may take if the client is to have the page in time: a fifth is left for writing
// and reading it.
func (g *Gatherer) patienceFor(header http.Header) time.Duration {
	seconds, err := strconv.ParseFloat(header.Get(waits), 64)
	if err != nil || !(seconds > 0) {
		return g.patience
	}
	return time.Duration(min(0.8*seconds, longest.Seconds()) * float64(time.Second))
}

// gather reads all daemons, side by side, and puts their families together. Those that don't answer before ctx ends are
// left out.
func (g *Gatherer) gather(ctx context.Context) map[string]*dto.MetricFamily {
	began, daemons := time.Now(), g.Daemons()
	answers := make([]answer, len(daemons)+1)
	answers[len(daemons)] = answer{daemon: self, families: g.own()}
	var wg sync.WaitGroup
	for i, name := range daemons {
		wg.Go(func() {
			answers[i] = answer{daemon: name}
			answers[i].families, answers[i].err = g.read(ctx, filepath.Join(g.dir, name+".sock"))
		})
	}
	wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range answers[:len(daemons)] {
		ended := errors.Is(a.err, context.DeadlineExceeded) || errors.Is(a.err, context.Canceled)
		switch {
		case a.err == nil:
			g.up.WithLabelValues(a.daemon).Set(1)
		case !ended || time.Since(began) >= g.patience/2: // a client that waits for less tells nothing of the daemon
			g.up.WithLabelValues(a.daemon).Set(0)
		}
	}
	return merge(answers, g.shared)
}

// own are the metrics of the Kubernetes packages in this process: requests to the API server, reviews. What they say of
// the process itself is on the socket.
func (g *Gatherer) own() map[string]*dto.MetricFamily {
	if g.local == nil {
		return nil
	}
	// The metrics that can be read are served. An error is a defect of a package's metric.
	list, _ := g.local.Gather()
	families := map[string]*dto.MetricFamily{}
	for _, family := range list {
		if name := family.GetName(); !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			families[name] = family
		}
	}
	return families
}

// Daemons are the names of those that have a socket, and of those that had one.
func (g *Gatherer) Daemons() []string {
	// The pattern is sound; a directory that can't be read has no daemons.
	paths, _ := filepath.Glob(filepath.Join(g.dir, "*.sock"))
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, path := range paths {
		g.known[strings.TrimSuffix(filepath.Base(path), ".sock")] = true
	}
	return slices.Sorted(maps.Keys(g.known))
}

func (g *Gatherer) read(ctx context.Context, socket string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon/metrics", nil)
	if err != nil {
		return nil, err
	}
	if g.accept != "" {
		request.Header.Set("Accept", g.accept)
	}
	response, err := (&http.Client{Transport: transport(socket)}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", response.Status)
	}
	decode := parse
	if expfmt.ResponseFormat(response.Header).FormatType() == expfmt.TypeProtoDelim {
		decode = messages
	}
	families, err := decode(response.Body)
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return families, nil
}

func parse(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// messages reads what has the form of protocol buffers.
func messages(body io.Reader) (map[string]*dto.MetricFamily, error) {
	families := map[string]*dto.MetricFamily{}
	decoder := expfmt.NewDecoder(body, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for {
		family := &dto.MetricFamily{}
		switch err := decoder.Decode(family); {
		case errors.Is(err, io.EOF):
			return families, nil
		case err != nil:
			return nil, err
		}
		families[family.GetName()] = family
	}
}

// keepName makes a counter one of an unknown type if OpenMetrics would give it another name: there the names of
// counters end with _total, and those of the kubelet's don't all.
func keepName(name string, family *dto.MetricFamily) {
	if family.GetType() != dto.MetricType_COUNTER || strings.HasSuffix(name, "_total") {
		return
	}
	family.Type = dto.MetricType_UNTYPED.Enum()
	for _, m := range family.Metric {
		value := m.GetCounter().GetValue()
		m.Counter, m.Untyped = nil, &dto.Untyped{Value: &value}
	}
}

// merge puts the families of the same name together. shared are the names that several daemons have; it learns new
// ones.
func merge(answers []answer, shared map[string]bool) map[string]*dto.MetricFamily {
	owners := map[string]int{}
	for _, a := range answers {
		for name, family := range a.families {
			if slices.ContainsFunc(family.Metric, func(m *dto.Metric) bool { return !told(m) }) {
				owners[name]++
			}
			if owners[name] > 1 {
				shared[name] = true
			}
		}
	}
	all := map[string]*dto.MetricFamily{}
	for _, a := range answers {
		for name, family := range a.families {
			if shared[name] {
				mark(family, a.daemon)
			}
			whole := all[name]
			switch {
			case whole == nil:
				all[name] = family
			case whole.GetType() == family.GetType():
				whole.Metric = append(whole.Metric, family.Metric...)
			}
		}
	}
	return all
}

// told reports whether the series says which daemon it is from.
func told(m *dto.Metric) bool {
	return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == label })
}

// mark has the series say which daemon they are from, where they don't yet.
func mark(family *dto.MetricFamily, daemon string) {
	name := label
	for _, m := range family.Metric {
		if told(m) {
			continue
		}
		m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &daemon})
		slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	}
}
