package logs

import (
	"errors"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ErrDecode and ErrInvalid are what can be wrong with a query: it can't be read (400), or asks for nonsense (422).
var (
	ErrDecode  = errors.New(`{"message": "Unable to decode query."}`)
	ErrInvalid = errors.New(`{"message": "Invalid request."}`)
)

// Query is what /containerLogs is asked for.
type Query struct {
	Options
	Follow   bool
	Previous bool
}

// ParseQuery reads the parameters of /containerLogs, which are those of PodLogOptions (and tail, the older name
// of tailLines).
func ParseQuery(values url.Values, now time.Time) (Query, error) {
	o, err := decodeOptions(values)
	if err != nil {
		return Query{}, ErrDecode
	}
	if !valid(o) {
		return Query{}, ErrInvalid
	}
	q := Query{Follow: o.Follow, Previous: o.Previous}
	q.Options = Options{Tail: -1, Limit: -1, Timestamps: o.Timestamps, Stdout: true, Stderr: true}
	if o.TailLines != nil {
		q.Tail = *o.TailLines
	}
	if o.LimitBytes != nil {
		q.Limit = *o.LimitBytes
	}
	if o.SinceTime != nil {
		q.Since = o.SinceTime.Time
	}
	if o.SinceSeconds != nil {
		q.Since = now.Add(-time.Duration(min(*o.SinceSeconds, maxSeconds)) * time.Second)
	}
	if o.Stream != nil {
		q.Stdout, q.Stderr = *o.Stream != corev1.LogStreamStderr, *o.Stream != corev1.LogStreamStdout
	}
	return q, nil
}

// maxSeconds is about 290 years: more doesn't fit into a duration.
const maxSeconds = int64((1<<63 - 1) / time.Second)

// decodeOptions converts as the API machinery does: a boolean is true unless it is "false" or "0".
func decodeOptions(values url.Values) (o corev1.PodLogOptions, err error) {
	tail := values["tailLines"]
	if old := values.Get("tail"); old == "all" {
		tail = nil
	} else if old != "" {
		tail = []string{old}
	}
	bools := map[string]*bool{"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps}
	for name, into := range bools {
		if texts, ok := values[name]; ok {
			err = errors.Join(err, runtime.Convert_Slice_string_To_bool(&texts, into, nil))
		}
	}
	for _, n := range []struct {
		texts []string
		into  **int64
	}{{tail, &o.TailLines}, {values["limitBytes"], &o.LimitBytes}, {values["sinceSeconds"], &o.SinceSeconds}} {
		if len(n.texts) > 0 {
			err = errors.Join(err, runtime.Convert_Slice_string_To_Pointer_int64(&n.texts, n.into, nil))
		}
	}
	if text := values.Get("sinceTime"); text != "" {
		o.SinceTime = &metav1.Time{}
		err = errors.Join(err, o.SinceTime.UnmarshalQueryParameter(text))
	}
	if texts := values["stream"]; len(texts) > 0 {
		o.Stream = &texts[0]
	}
	return o, err
}

// valid holds the API's rules of PodLogOptions.
func valid(o corev1.PodLogOptions) bool {
	stream := corev1.LogStreamAll
	if o.Stream != nil {
		stream = *o.Stream
	}
	known := stream == corev1.LogStreamAll || stream == corev1.LogStreamStdout || stream == corev1.LogStreamStderr
	return known &&
		(o.TailLines == nil || *o.TailLines >= 0 && stream == corev1.LogStreamAll) &&
		(o.LimitBytes == nil || *o.LimitBytes > 0) &&
		(o.SinceSeconds == nil || *o.SinceSeconds > 0 && o.SinceTime == nil)
}
