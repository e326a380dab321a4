package web

import (
	"encoding/json"
	"strconv"
	"strings"
)

// object is one of JSON's.
type object = map[string]any

// openAPI is the table of routes as an OpenAPI 3.1 document. Schemas of replies follow
// from the examples: other columns and fields may come besides.
func openAPI(version string) []byte {
	document := object{
		"openapi": "3.1.0",
		"info":    object{"title": "Tidemark", "version": version, "description": "Counters and unread numbers. Ids and positions are decimal strings."},
		"paths":   paths(),
		"components": object{
			"schemas":         object{"problem": schemaOf(object{"type": page, "title": "Not found", "status": 404.0, "detail": "there is no counter \"x\""})},
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
		"security": []any{object{}, object{"token": []any{}}},
	}
	out, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		panic(err) // of strings, numbers and maps alone
	}
	return append(out, '\n')
}

func paths() object {
	all := object{"/v1/events": object{"post": eventsOperation()}}
	for i := range routes {
		r := &routes[i]
		all[r.pattern] = object{strings.ToLower(r.method): r.operation()}
	}
	return all
}

func (r *route) operation() object {
	var parameters []any
	for i := range r.path {
		parameters = append(parameters, r.path[i].describe("path"))
	}
	for _, p := range r.parameters() {
		parameters = append(parameters, p.describe("query"))
	}
	o := object{"operationId": r.endpoint, "summary": r.about, "responses": responses(r.reply, r.tagged)}
	if parameters != nil {
		o["parameters"] = parameters
	}
	if r.body {
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": object{"type": "object"}}}}
	}
	return o
}

func eventsOperation() object {
	return object{
		"operationId": "events",
		"summary":     "Stores events, one JSON object a line.",
		"parameters": []any{object{
			"name": "Idempotency-Key", "in": "header", "schema": object{"type": "string", "maxLength": keyMax},
			"description": "the same body with the same key is stored once, within two minutes",
		}},
		"requestBody": object{"required": true, "content": object{"application/x-ndjson": object{"schema": object{"type": "string"}}}},
		"responses":   responses(`{"stored":2,"position":"7341","refused":[{"line":3,"reason":"id","detail":"post is missing"}]}`, false),
	}
}

func (p *parameter) describe(in string) object {
	o := object{"name": p.name, "in": in, "description": p.about, "schema": p.kind.schema()}
	if in == "path" {
		o["required"] = true
	}
	if p.kind == list || p.kind == either {
		o["explode"] = false // between commas
		o["style"] = map[string]string{"path": "simple", "query": "form"}[in]
	}
	return o
}

func (k kind) schema() object {
	switch k {
	case number:
		return object{"type": "integer", "minimum": 1}
	case boolean:
		return object{"type": "boolean"}
	case list, either:
		return object{"type": "array", "items": object{"type": "string"}, "minItems": 1}
	}
	return object{"type": "string"}
}

// responses are an answer like the example, and the problems.
func responses(example string, tagged bool) object {
	var like any
	if err := json.Unmarshal([]byte(example), &like); err != nil {
		panic(err) // the table is wrong
	}
	all := object{"200": object{
		"description": "the answer",
		"content":     object{"application/json": object{"schema": schemaOf(like), "example": like}},
	}}
	if tagged {
		all["304"] = object{"description": "nothing has changed since the answer with the ETag of If-None-Match"}
	}
	problems(all)
	return all
}

// problems adds an answer for each code.
func problems(all object) {
	for status, t := range titles {
		all[strconv.Itoa(status)] = object{
			"description": t.title,
			"content":     object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/problem"}}},
		}
	}
}

// schemaOf is the schema of values like one.
func schemaOf(like any) object {
	switch like := like.(type) {
	case object:
		return object{"type": "object", "properties": properties(like)}
	case []any:
		return object{"type": "array", "items": items(like)}
	case float64:
		return object{"type": "integer"}
	case bool:
		return object{"type": "boolean"}
	}
	return object{"type": "string"}
}

func properties(like object) object {
	all := object{}
	for name, value := range like {
		all[name] = schemaOf(value)
	}
	return all
}

func items(like []any) object {
	if len(like) == 0 {
		return object{}
	}
	return schemaOf(like[0])
}
