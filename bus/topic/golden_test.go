package topic_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// testdata has one message of each topic for each schema that was ever released, as
// <topic>.v<schema>.json (and <topic>.reply.v<schema>.json for a call). They are never changed, only
// added to: a daemon must understand what the previous release wrote.
func golden(t bus.Topic, part string) string {
	return filepath.Join("testdata", fmt.Sprintf("%s%s.v%d.json", t.Name(), part, t.Schema()))
}

func TestGoldenMessages(t *testing.T) {
	for _, tp := range topic.All() {
		t.Run(tp.Name(), func(t *testing.T) { checkGolden(t, golden(tp, ""), tp.Payload(), removed[tp.Name()]...) })
		if tp.Kind() == bus.KindCall {
			t.Run(tp.Name()+" reply", func(t *testing.T) { checkGolden(t, golden(tp, ".reply"), replies[tp.Name()]) })
		}
	}
}

// removed are fields of earlier releases, by topic, that no daemon has read. Readers ignore them, and so did the
// readers of those releases where they were missing.
var removed = map[string][]string{
	topic.NodeMachine.Name(): {"imageFS"},
	topic.PLEGEvent.Name():   {"cgroupParent", "annotations"},
}

// replies are the types of the calls' replies.
var replies = map[string]reflect.Type{
	topic.VolumeSubPath.Name():     reflect.TypeFor[topic.SubPathReply](),
	topic.VolumeUsage.Name():       reflect.TypeFor[topic.VolumeUsageReply](),
	topic.ResourcePreStart.Name():  reflect.TypeFor[topic.PreStartReply](),
	topic.ResourceClaims.Name():    reflect.TypeFor[topic.ClaimsReply](),
	topic.ResourceForget.Name():    reflect.TypeFor[topic.ForgetReply](),
	topic.PodEvict.Name():          reflect.TypeFor[topic.EvictionReply](),
	topic.PodRetry.Name():          reflect.TypeFor[topic.RetryReply](),
	topic.ManifestCheck.Name():     reflect.TypeFor[topic.ManifestReply](),
	topic.StatusUnwritten.Name():   reflect.TypeFor[topic.UnwrittenReply](),
	topic.StatsSummary.Name():      reflect.TypeFor[statsv1alpha1.Summary](),
	topic.GCPlan.Name():            reflect.TypeFor[topic.GCPlanReply](),
	topic.ShutdownRequested.Name(): reflect.TypeFor[topic.Shutdown](),
}

// checkGolden decodes the file as the type and encodes it again: nothing of it may get lost, and the
// file must show every field of our own types.
func checkGolden(t *testing.T, file string, payload reflect.Type, removed ...string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: write a message with every field into it", err)
	}
	if err := json.Unmarshal(data, reflect.New(payload).Interface()); err != nil {
		t.Fatalf("%s no longer decodes: %v", file, err)
	}
	for _, field := range removed {
		data = without(t, data, field)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	value := reflect.New(payload)
	if err := decoder.Decode(value.Interface()); err != nil {
		t.Fatalf("%s no longer decodes: %v", file, err)
	}
	again, err := json.Marshal(value.Interface())
	if err != nil {
		t.Fatal(err)
	}
	if diff := lost(parse(t, data), parse(t, again), ""); diff != "" {
		t.Fatalf("%s: %s", file, diff)
	}
	for _, field := range unset(value.Elem(), "") {
		t.Errorf("%s doesn't show the field %s", file, field)
	}
}

// without returns the message without every field of that name.
func without(t *testing.T, data []byte, field string) []byte {
	t.Helper()
	count := 0
	var remove func(v any)
	remove = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if _, found := v[field]; found {
				delete(v, field)
				count++
			}
			for _, inner := range v {
				remove(inner)
			}
		case []any:
			for _, inner := range v {
				remove(inner)
			}
		}
	}
	message := parse(t, data)
	if remove(message); count == 0 {
		t.Errorf("the message doesn't have the field %s", field)
	}
	rest, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return rest
}

func parse(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// lost returns what of want isn't in have.
func lost(want, have any, path string) string {
	if elements, ok := want.([]any); ok {
		others, _ := have.([]any)
		if len(others) != len(elements) {
			return fmt.Sprintf("%s had %d elements and has %d", path, len(elements), len(others))
		}
		for i, element := range elements {
			if diff := lost(element, others[i], fmt.Sprintf("%s[%d]", path, i)); diff != "" {
				return diff
			}
		}
		return ""
	}
	fields, ok := want.(map[string]any)
	if !ok {
		if !reflect.DeepEqual(want, have) {
			return fmt.Sprintf("%s was %v and became %v", path, want, have)
		}
		return ""
	}
	others, _ := have.(map[string]any)
	for name, value := range fields {
		other, found := others[name]
		if !found {
			return fmt.Sprintf("%s.%s got lost", path, name)
		}
		if diff := lost(value, other, path+"."+name); diff != "" {
			return diff
		}
	}
	return ""
}

// unset are the fields of this repository's structs that are zero.
func unset(v reflect.Value, path string) []string {
	switch v.Kind() {
	case reflect.Pointer:
		return unset(v.Elem(), path)
	case reflect.Slice:
		if v.Len() > 0 {
			return unset(v.Index(0), path+"[0]")
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			return unset(v.MapIndex(key), path+"["+fmt.Sprint(key)+"]")
		}
	case reflect.Struct:
		return unsetFields(v, path)
	default:
	}
	return nil
}

func unsetFields(v reflect.Value, path string) []string {
	if !strings.HasPrefix(v.Type().PkgPath(), "kubelot.dev/") {
		return nil // Kubernetes' own types have their own tests
	}
	var missing []string
	for i := range v.NumField() {
		name := path + "." + v.Type().Field(i).Name
		if v.Field(i).IsZero() {
			missing = append(missing, name)
			continue
		}
		missing = append(missing, unset(v.Field(i), name)...)
	}
	return missing
}

// Garbage ends in an error, never in a panic, and what decodes can be encoded again.
func FuzzDecode(f *testing.F) {
	for i, tp := range topic.All() {
		data, err := os.ReadFile(golden(tp, ""))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, data)
	}
	f.Add(0, []byte(`{"pod":null}`))
	f.Add(1, []byte("\x00"))
	topics := topic.All()
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		tp := topics[((which%len(topics))+len(topics))%len(topics)]
		value := reflect.New(tp.Payload())
		if json.Unmarshal(data, value.Interface()) != nil {
			return
		}
		if _, err := json.Marshal(value.Interface()); err != nil {
			t.Fatalf("%s decodes but doesn't encode again: %v", tp.Name(), err)
		}
	})
}
