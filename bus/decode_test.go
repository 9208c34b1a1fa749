package bus

import "testing"

func TestNullIsNoPayload(t *testing.T) {
	things := NewState[struct{ N int }](Spec{Name: "thing", Keys: "<id>"})
	for _, text := range []string{"null", " null\n", "", "{", "\x00", `{"N": "x"}`, "[]"} {
		change, err := things.decode(Delivery{Message: Message{Subject: "thing.a", Data: []byte(text)}}, "reader")
		if err == nil {
			t.Errorf("%q was decoded: %v", text, change)
		}
	}
	change, err := things.decode(Delivery{Message: Message{Subject: "thing.a", Data: []byte(`{"N": 2, "Newer": 1}`)}},
		"reader")
	if err != nil || change.Value.N != 2 || change.Key != "a" {
		t.Errorf("got %v, %v", change, err)
	}
}
