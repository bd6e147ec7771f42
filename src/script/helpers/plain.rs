//! What a helper may hold at its top level: imports, constants and functions.
//!
//! A helper is loaded for every script, so loading must do nothing and cost nothing. A constant is made of literals, operators
//! and other constants; whatever has to call something belongs in a function.

use rhai::{AST, ASTFlags, Expr, Position, Stmt};

/// The constants of a helper, each with its name.
pub fn constants(ast: &AST) -> impl Iterator<Item = (&str, &Stmt)> {
    ast.statements().iter().filter_map(|statement| match statement {
        Stmt::Var(definition, ..) => Some((definition.0.as_str(), statement)),
        _ => None,
    })
}

/// Finds the first thing that does not belong there.
///
/// # Errors
/// What it is, and where.
pub fn check(ast: &AST) -> Result<(), (&'static str, Position)> {
    ast.statements().iter().try_for_each(statement)
}

fn statement(statement: &Stmt) -> Result<(), (&'static str, Position)> {
    match statement {
        Stmt::Noop(_) | Stmt::Export(..) => Ok(()),
        Stmt::Import(import, _) if matches!(import.0, Expr::StringConstant(..)) => Ok(()),
        Stmt::Var(definition, flags, position) if flags.intersects(ASTFlags::CONSTANT) => {
            if is_plain(&definition.1) {
                return Ok(());
            }
            Err(("a constant of a helper is made of literals, operators and other constants", *position))
        }
        other => Err(("the top level of a helper holds only imports, constants and functions", other.position())),
    }
}

fn is_plain(expression: &Expr) -> bool {
    match expression {
        Expr::Array(items, _) | Expr::InterpolatedString(items, _) => items.iter().all(is_plain),
        Expr::Map(map, _) => map.0.iter().all(|(_, value)| is_plain(value)),
        Expr::FnCall(call, _) => call.op_token.is_some() && call.args.iter().all(is_plain),
        Expr::And(operands, _) | Expr::Or(operands, _) => operands.iter().all(is_plain),
        // Only of this file: another module's would tie its constants to that module.
        Expr::Variable(variable, ..) => variable.2.is_empty(),
        Expr::DynamicConstant(value, _) => !value.is_fnptr(),
        other => other.is_constant(),
    }
}
