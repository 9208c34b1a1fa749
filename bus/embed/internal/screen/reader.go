package screen

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"
)

const (
	// The heartbeat of a reader, and how long the server waits for one that has gone.
	minHeartbeat, maxHeartbeat = time.Second, 5 * time.Minute
	maxInactive                = time.Minute
)

// createRequest and readerConfig are what a reader may ask for. Whatever else a consumer of the server has (a name that
// stays, other subjects, pulling, mirrors, samples, pauses, groups) is unknown here, and so refused.
type createRequest struct {
	Stream string       `json:"stream_name"`
	Config readerConfig `json:"config"`
}

type readerConfig struct {
	Name              string        `json:"name"`
	FilterSubject     string        `json:"filter_subject"`
	DeliverSubject    string        `json:"deliver_subject"`
	DeliverPolicy     string        `json:"deliver_policy"`
	OptStartSeq       uint64        `json:"opt_start_seq,omitempty"`
	OptStartTime      *time.Time    `json:"opt_start_time,omitempty"`
	AckPolicy         string        `json:"ack_policy"`
	ReplayPolicy      string        `json:"replay_policy"`
	FlowControl       bool          `json:"flow_control"`
	Heartbeat         time.Duration `json:"idle_heartbeat"`
	InactiveThreshold time.Duration `json:"inactive_threshold"`
	MemoryStorage     bool          `json:"mem_storage"`
	Replicas          int           `json:"num_replicas"`
}

// createReader is the request for a new reader in the screen's own words. The subject is the stream, the reader's name
// and its filter, which the server's permissions limit.
func (r rules) createReader(subject string, payload []byte) ([]byte, string) {
	stream, rest, _ := strings.Cut(subject, ".")
	name, filter, _ := strings.Cut(rest, ".")
	if !isToken(stream) || !r.isReader(name) || filter == "" {
		return nil, "this is not a reader of its own"
	}
	var request createRequest
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return nil, err.Error()
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, "something follows the request"
	}
	if request.Stream != stream || request.Config.Name != name || request.Config.FilterSubject != filter {
		return nil, "the subject and the content name different readers"
	}
	if why := r.config(request.Config); why != "" {
		return nil, why
	}
	data, err := json.Marshal(request)
	if err != nil {
		return nil, err.Error()
	}
	return data, ""
}

// config says why a reader is refused, or "".
func (r rules) config(c readerConfig) string {
	policies := map[string]bool{
		"all": true, "new": true, "last_per_subject": true, "by_start_sequence": true, "by_start_time": true,
	}
	switch {
	case !strings.HasPrefix(c.DeliverSubject, r.inbox()) || !isLiteral(c.DeliverSubject):
		return "it would deliver to " + c.DeliverSubject
	case !policies[c.DeliverPolicy]:
		return "it begins with " + c.DeliverPolicy
	case c.AckPolicy != "none" || c.ReplayPolicy != "instant":
		return "the bus would keep track of what it has read"
	case !c.FlowControl || c.Heartbeat < minHeartbeat || c.Heartbeat > maxHeartbeat:
		return "nothing bounds what is on its way to it"
	case c.InactiveThreshold <= 0 || c.InactiveThreshold > maxInactive:
		return "the bus would keep it when it has gone"
	case !c.MemoryStorage || c.Replicas != 1:
		return "it would be stored"
	}
	return ""
}
