package metrics

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// imageMetrics are those of the images that containers ask for, which the puller records.
type imageMetrics struct {
	exemplars
	pulls                      *prometheus.HistogramVec
	images, pullChecks         *prometheus.CounterVec
	pullIntents, pulledRecords *prometheus.GaugeVec
	providers                  *prometheus.HistogramVec
	providerErrors             *prometheus.CounterVec
	providerConfig             *prometheus.GaugeVec
}

func newImageMetrics(f *factory) *imageMetrics {
	pullBuckets := []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	return &imageMetrics{
		exemplars: f.exemplars,
		pulls: f.histogram("kubelet_image_pull_duration_seconds", "How long image pulls took with the wait for their turn, "+
			"by the image's size.", pullBuckets, "image_size_in_bytes"),
		images: f.counter("kubelet_image_manager_ensure_image_requests_total",
			"Requests of containers for their image, by pull policy, by whether it was there, and "+
				"by whether it had to be pulled.", "pull_policy", "present_locally", "pull_required"),
		pullChecks: f.counter("kubelet_imagemanager_image_mustpull_checks_total",
			"Checks whether a pod may use an image that is there without its credentials being tried, "+
				"by result: credentialPolicyAllowed, credentialRecordFound, mustAuthenticate or error.", "result"),
		pullIntents: f.gauge("kubelet_imagemanager_ondisk_pullintents",
			"Records of image pulls that are under way, or whose end wasn't seen."),
		pulledRecords: f.gauge("kubelet_imagemanager_ondisk_pulledrecords", "Records of images that were pulled."),
		providers: f.histogram("kubelet_credential_provider_plugin_duration",
			"How long runs of credential providers took, in seconds.", prometheus.DefBuckets, "plugin_name"),
		providerErrors: f.counter("kubelet_credential_provider_plugin_errors_total",
			"Runs of credential providers that failed.", "plugin_name"),
		providerConfig: f.gauge("kubelet_credential_provider_config_info",
			"The hash of the configuration of credential providers.", "hash"),
	}
}

// ImageAsked records a container's request for its image; present and pull are nil where that isn't known.
func (m *imageMetrics) ImageAsked(policy corev1.PullPolicy, present, pull *bool) {
	m.images.WithLabelValues(strings.ToLower(string(policy)), ternary(present), ternary(pull)).Inc()
}

func ternary(b *bool) string {
	if b == nil {
		return "unknown"
	}
	return strconv.FormatBool(*b)
}

// PullChecked records the result of a check whether a pod may use an image that is there.
func (m *imageMetrics) PullChecked(result string) { m.pullChecks.WithLabelValues(result).Inc() }

// PullRecords reports how many records of image pulls there are: of intents, and of pulls that succeeded.
func (m *imageMetrics) PullRecords(intents, pulled int) {
	m.pullIntents.WithLabelValues().Set(float64(intents))
	m.pulledRecords.WithLabelValues().Set(float64(pulled))
}

// ProviderRan records a run of a credential provider.
func (m *imageMetrics) ProviderRan(name string, took time.Duration, err error) {
	m.providers.WithLabelValues(name).Observe(took.Seconds())
	if err != nil {
		m.providerErrors.WithLabelValues(name).Inc()
	}
}

// ProviderConfig shows the hash of the configuration of credential providers; empty if there is none.
func (m *imageMetrics) ProviderConfig(hash string) {
	if hash != "" {
		m.providerConfig.WithLabelValues(hash).Set(1)
	}
}

// pulled records an image that was pulled.
func (m *imageMetrics) pulled(uid types.UID, took time.Duration, size uint64) {
	m.observe(m.pulls, uid, took.Seconds(), sizeLabel(size))
}

// sizes are the upper ends of the labels by which the kubelet sorts images, in MiB.
var sizes = []struct {
	upTo  uint64
	label string
}{
	{10, "0-10MB"},
	{100, "10MB-100MB"},
	{500, "100MB-500MB"},
	{1 << 10, "500MB-1GB"},
	{5 << 10, "1GB-5GB"},
	{10 << 10, "5GB-10GB"},
	{20 << 10, "10GB-20GB"},
	{30 << 10, "20GB-30GB"},
	{40 << 10, "30GB-40GB"},
	{60 << 10, "40GB-60GB"},
	{100 << 10, "60GB-100GB"},
}

func sizeLabel(bytes uint64) string {
	if bytes == 0 {
		return "N/A"
	}
	for _, s := range sizes {
		if bytes <= s.upTo<<20 {
			return s.label
		}
	}
	return "GT100GB"
}
