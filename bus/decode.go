package bus

import (
	"bytes"
	"encoding/json"
	"errors"
)

// decode reads a payload. JSON's null, which the decoder would take for an empty value, is no payload.
func decode(data []byte, into any) error {
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return errors.New("the payload is null")
	}
	return json.Unmarshal(data, into)
}
