package tap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// hidden stands for a value that isn't shown.
const hidden = "(hidden)"

// lastApplied holds the whole manifest, and so its environment, as kubectl apply left it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// redact is the message without values that may be secret: env values, HTTP probe headers, and kubectl's
// copy of the manifest.
func redact(data []byte) (json.RawMessage, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber() // a float would round large numbers
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("message isn't JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("message isn't JSON: there is more behind its end")
	}
	hide(value)
	return json.Marshal(value)
}

func hide(value any) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			hide(item)
		}
	case map[string]any:
		for key, member := range v {
			switch key {
			case "env", "httpHeaders":
				hideValues(member)
			case lastApplied:
				v[key] = hidden
			default:
				hide(member)
			}
		}
	}
}

// hideValues hides the value of each name and value pair of a list.
func hideValues(list any) {
	items, _ := list.([]any)
	for _, item := range items {
		if pair, ok := item.(map[string]any); ok && pair["value"] != nil {
			pair["value"] = hidden
		}
	}
}
