//! The spellings that a secret may be met in.

/// The shortest text that is searched for.
const SHORTEST: usize = 6;

/// Every spelling of `secret` that is long enough, each once.
pub(super) fn of(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    forms.extend(percent_decoded(secret));
    forms.push(percent_encoded(secret, b"0123456789ABCDEF"));
    forms.push(percent_encoded(secret, b"0123456789abcdef"));
    // A page's own JSON is a string in ours: escaped twice.
    let escaped = json_escaped(secret);
    forms.extend([json_escaped(&escaped), escaped]);
    forms.retain(|form| form.len() >= SHORTEST);
    forms.sort();
    forms.dedup();
    forms
}

fn percent_encoded(text: &str, digits: &[u8; 16]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let (high, low) = (byte >> 4, byte & 15);
            encoded.extend(['%', digits[high as usize].into(), digits[low as usize].into()]);
        }
    }
    encoded
}

/// `None` where nothing was encoded, or the result is no text.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match escape_at(&bytes[at..]) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    (decoded.len() < bytes.len()).then(|| String::from_utf8(decoded).ok()).flatten()
}

fn escape_at(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = bytes else {
        return None;
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

fn json_escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
